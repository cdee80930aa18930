"""Record what the constructors of the installed Keras really accept.

Run with the interpreter of an environment that holds one TensorFlow; needs nothing else:

    python compat_tests/registry/record.py registry/_signatures

A table has, for every optimizer and learning-rate schedule, where its class lives and each argument with its default.
``targets.json`` has the versions of each target (``2.0``, ``2.21-keras3``, ``2.21-tf_keras``, ...) and the name of its
table. Targets with equal tables share one file, which has the name of the target that was recorded first. This one file
runs unchanged on the oldest and the newest TensorFlow.

Beside the arguments themselves it is tried, not read, which of them can be null, which can't be 0, and which exclude
each other.

An argument counts when the constructor names it, or when it goes through ``**kwargs`` *and has an effect*: some
versions swallow an argument such as ``decay`` with no more than a warning, and a document that relied on it would
train differently from what it says.
"""

import inspect
import itertools
import json
import os
import re
import sys
import warnings

# Arguments that some version of Keras takes through **kwargs, with a value that is not the default of any version.
KEYWORD_PROBES = {
    "clipnorm": 0.75,
    "clipvalue": 0.75,
    "global_clipnorm": 0.75,
    "decay": 0.125,
    "weight_decay": 0.125,
    "use_ema": True,
    "ema_momentum": 0.5,
    "ema_overwrite_frequency": 7,
    "jit_compile": True,
    "gradient_accumulation_steps": 3,
}

# Arguments that some versions refuse to take together.
CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")

# Arguments with no default need a value before the constructor can be tried at all.
REQUIRED_VALUES = {
    "initial_learning_rate": 0.1,
    "decay_steps": 10,
    "decay_rate": 0.9,
    "first_decay_steps": 10,
    "boundaries": [10],
    "values": [0.1, 0.01],
}


def record():
    """Return the table of the installed TensorFlow, and the name its file has."""
    import tensorflow as tf

    keras = tf.keras
    # TensorFlow 2.6 to 2.15 and tf_keras do not re-export the version with the rest of Keras.
    keras_package = sys.modules[keras.Model.__module__.split(".")[0]]
    keras_version = getattr(keras, "__version__", keras_package.__version__)
    minor = ".".join(tf.__version__.split(".")[:2])
    flavour = ""
    if tuple(int(part) for part in minor.split(".")) >= (2, 16):
        flavour = "-keras3" if keras_version.startswith("3.") else "-tf_keras"

    optimizers, schedules = {}, {}
    for path in ("optimizers", "optimizers.legacy", "optimizers.experimental"):
        if path == "optimizers.experimental" and minor == "2.9":
            continue  # scalekeeper refuses these previews
        prefix = path[len("optimizers.") :] + "." if "." in path else ""
        for name, cls in public_classes(keras, path):
            entry = describe(cls, path)
            if entry is not None and "learning_rate" in entry["arguments"]:
                optimizers[prefix + name.lower()] = entry
    for path in ("experimental", "optimizers.schedules"):
        for name, cls in public_classes(keras, path):
            if issubclass(cls, keras.optimizers.schedules.LearningRateSchedule):
                entry = describe(cls, path)
                if entry is not None and entry["arguments"]:
                    schedules[snake_case(name)] = entry

    table = {
        "tensorflow": tf.__version__,
        "keras": keras_version,
        "optimizers": optimizers,
        "schedules": schedules,
    }
    return table, minor + flavour


def public_classes(keras, path):
    """Yield (name, class) for the classes of ``tf.keras.<path>``, or nothing where this version has no such module."""
    module = keras
    for part in path.split("."):
        module = getattr(module, part, None)
        if module is None:
            return
    for name in sorted(dir(module)):
        cls = getattr(module, name)
        if inspect.isclass(cls) and not name.startswith("_"):
            yield name, cls


def describe(cls, path):
    """Return where the class is and what it takes, or None for one that cannot be made from plain values."""
    arguments, required, takes_keywords = {}, [], False
    for parameter in list(inspect.signature(cls.__init__).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_keywords = True
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            if parameter.default is parameter.empty:
                required.append(parameter.name)
            arguments[parameter.name] = None if parameter.default is parameter.empty else parameter.default
    if not set(required) <= set(REQUIRED_VALUES):
        return None
    base = {name: REQUIRED_VALUES[name] for name in required}
    if construct(cls, base) is None:
        return None
    if takes_keywords:
        for name, value in KEYWORD_PROBES.items():
            if name not in arguments:
                found, default = default_if_effective(cls, base, name, value)
                if found:
                    arguments[name] = default
    clipping = [name for name in CLIPPING if name in arguments]
    exclusive = [
        [first, second]
        for first, second in itertools.combinations(clipping, 2)
        if construct(cls, dict(base, **{first: 0.75, second: 0.75})) is None
    ]
    nullable = [
        name
        for name, default in arguments.items()
        if name not in required and default is None and construct(cls, dict(base, **{name: None})) is not None
    ]
    nonzero = [
        name
        for name, default in arguments.items()
        if isinstance(default, float) and construct(cls, dict(base, **{name: 0.0})) is None
    ]
    return {
        "class": f"{path}.{cls.__name__}",
        "arguments": arguments,
        "required": required,
        "nullable": nullable,
        "nonzero": nonzero,
        "exclusive": exclusive,
    }


def construct(cls, arguments):
    """Return an instance, or None when the constructor refuses or warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return cls(**arguments)
        except (Exception, Warning):
            return None


def default_if_effective(cls, base, name, value):
    """Return (True, default) when giving the keyword shows in the object's configuration or attributes."""
    changed = construct(cls, dict(base, **{name: value}))
    if changed is None or visible(changed, name) != value:
        return False, None
    return True, visible(construct(cls, base), name)


def visible(instance, name):
    value = instance.get_config().get(name, getattr(instance, name, None))
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return float(value.numpy() if hasattr(value, "numpy") else value)


def snake_case(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def main(folder):
    table, name = record()
    versions = {key: table.pop(key) for key in ("tensorflow", "keras")}
    index = read(folder, "targets")
    index.pop(name, None)
    equal = [entry["table"] for entry in index.values() if read(folder, entry["table"]) == table]
    index[name] = dict(versions, table=equal[0] if equal else free_name(name, index))
    if not equal:
        write(folder, index[name]["table"], table)
    write(folder, "targets", index)
    for file in os.listdir(folder):
        if file.endswith(".json") and file[:-5] not in {"targets"} | {entry["table"] for entry in index.values()}:
            os.remove(os.path.join(folder, file))
    counts = "{} optimizers, {} schedules".format(len(table["optimizers"]), len(table["schedules"]))
    print(f"{name}: {counts} in {index[name]['table']}.json")


def free_name(name, index):
    """Return the name of the target, or another one if a table that others use has it."""
    taken = {entry["table"] for entry in index.values()}
    return next(
        free for free in itertools.chain([name], (f"{name}-{i}" for i in itertools.count(2))) if free not in taken
    )


def read(folder, name):
    path = os.path.join(folder, name + ".json")
    if not os.path.exists(path):
        return {}
    with open(path) as stream:
        return json.load(stream)


def write(folder, name, content):
    with open(os.path.join(folder, name + ".json"), "w") as stream:
        stream.write(json.dumps(content, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
