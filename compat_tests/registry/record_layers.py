"""Record which arguments the layers of the installed Keras take.

Run with the interpreter of an environment that holds one TensorFlow; needs nothing else:

    python compat_tests/registry/record_layers.py serialization/keras/layer_signatures.json

puts the installed target into the table, beside those that are there.
"""

import importlib.util
import inspect
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def module_at(*path):
    """A module of the package that needs nothing of the rest."""
    location = os.path.join(ROOT, *path)
    spec = importlib.util.spec_from_file_location(os.path.splitext(path[-1])[0], location)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record():
    """The name of the installed target, and class → its arguments."""
    import tensorflow as tf

    constructors = module_at("serialization", "_keras_introspection.py")
    keras = tf.keras
    layers = {}
    for name in dir(keras.layers):
        cls = getattr(keras.layers, name)
        if inspect.isclass(cls) and issubclass(cls, keras.layers.Layer):
            layers[name] = sorted(constructors.config_parameters(cls))
    if constructors.keeps_policies(keras):
        layers["Policy"] = ["name"]
    minor = ".".join(tf.__version__.split(".")[:2])
    if tuple(map(int, minor.split("."))) < (2, 16):
        return minor, layers
    return minor + ("-keras3" if hasattr(keras, "Operation") else "-tf_keras"), layers


def merged(document, target, layers):
    """The table with one target's layers in it: class → argument → the targets that have it, as bits."""
    targets = document["targets"]
    bit = 1 << targets.index(target)
    table = {
        name: {argument: bits & ~bit for argument, bits in arguments.items()}
        for name, arguments in document["layers"].items()
    }
    for name, arguments in layers.items():
        for argument in ["", *arguments]:  # the class itself
            known = table.setdefault(name, {})
            known[argument] = known.get(argument, 0) | bit
    kept = {name: {argument: bits for argument, bits in each.items() if bits} for name, each in table.items()}
    return {
        "targets": targets,
        "layers": {name: dict(sorted(kept[name].items())) for name in sorted(kept) if kept[name]},
    }


def main():
    (path,) = sys.argv[1:]
    names = [f"2.{minor}" for minor in range(16)]
    names += [f"2.{minor}-{keras}" for minor in range(16, 22) for keras in ("tf_keras", "keras3")]
    document = {"targets": names, "layers": {}}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            document = json.load(stream)
    target, layers = record()
    document = merged(document, target, layers)
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        stream.write('{"targets": ' + json.dumps(names) + ',\n "layers": {\n')
        lines = [f"  {json.dumps(name)}: {json.dumps(arguments)}" for name, arguments in document["layers"].items()]
        stream.write(",\n".join(lines) + "\n }}\n")
    print(f"{target}: {len(layers)} layers")


if __name__ == "__main__":
    main()
