"""Load the models of the corpus with the installed TensorFlow, and classify what comes back.

    python compat_tests/corpus/consume.py [producer …] [--plain] [--loss-scale] [--kind NAME] [--write]

prints how many models of each producer are right, refused by name, wrong, random, loaded with a warning, or failed
otherwise. ``--plain`` measures Keras without scalekeeper. ``--write`` puts the counts, and what was refused, into
``compat_tests/corpus/results``.
"""

import argparse
import collections
import json
import os
import tempfile
import warnings

import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.repository import load_script, repository_path

files = load_script("compat_tests/corpus/files.py")
models = load_script("compat_tests/corpus/models.py")

DATA = repository_path("compat_tests", "corpus", "data")
RIGHT, REFUSED, WRONG, RANDOM, WARNED, FAILED = "right", "refused", "wrong", "random", "warned", "failed"
LAMBDA = "but a Lambda layer uses it"  # the module of the function, which is that of the producer here
Outcome = collections.namedtuple("Outcome", "grade reason")


def consumer():
    """Return the name of the installed TensorFlow, as producers have them."""
    major, minor = tf.__version__.split(".")[:2]
    if hasattr(tf.keras, "Operation"):
        return "keras3"
    return "tfkeras" if int(minor) >= 16 else f"tf{major}{minor}"


def results_path(name):
    return repository_path("compat_tests", "corpus", "results", f"{name}.json")


def results_of(name):
    """Return the results of a consumer; None if it has none."""
    if not os.path.exists(results_path(name)):
        return None
    with open(results_path(name), encoding="utf-8") as stream:
        return json.load(stream)


def producers():
    """Return the names of all producers."""
    return sorted(name[: -len(".json.xz")] for name in os.listdir(DATA) if name.endswith(".json.xz"))


def data_of(producer):
    return files.load(os.path.join(DATA, f"{producer}.json.xz"))


def endings():
    """Return the endings of the files that the installed Keras can rebuild."""
    return [".h5", *([".keras"] if hasattr(tf.keras.Model, "save_own_variables") else [])]


def arrays_of(kind):
    """Return the weights of a model, in order."""
    return [
        np.array(each["values"], dtype=each["dtype"])
        if "values" in each
        else models.weight(index, each["shape"], each["is_positive"]).astype(each["dtype"])
        for index, each in enumerate(kind["weights"])
    ]


def with_loss_scale(outlined, config):
    """Return the outline of a file whose optimizer has a loss scale."""
    outlined = json.loads(json.dumps(outlined))
    if "zip" in outlined:
        outlined["zip"]["config.json"]["compile_config"]["optimizer"] = config
        outlined["h5"]["members"].pop("optimizer", None)
        return outlined
    ((key, training),) = outlined["h5"]["attributes"]["training_config"].items()
    outlined["h5"]["attributes"]["training_config"] = {key: {**training, "optimizer_config": config}}
    outlined["h5"]["members"].pop("optimizer_weights", None)
    return outlined


def write(data, name, ending, folder, has_loss_scale=False):
    """Write the file of one kind; return its path."""
    kind = data["kinds"][name]
    outlined = kind["files"][ending]
    if has_loss_scale:
        outlined = with_loss_scale(outlined, data["loss_scale"][ending])
    path = os.path.join(folder, f"{name}{ending}")
    files.write(outlined, arrays_of(kind), path)
    return path


def classify(kind, path, load):
    """Load a file and say how good the model is."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            model = load(path)
        except scalekeeper.ScalekeeperError as error:
            is_named = "Error:" not in str(error) and names_a_layer(str(error), kind, path)
            return Outcome(REFUSED if is_named else FAILED, str(error))
        except Exception as error:  # plain Keras raises many types
            return Outcome(FAILED, f"{type(error).__name__}: {error}")
    arrays = arrays_of(kind)
    known = {array.tobytes() for array in arrays}
    strangers = [
        getattr(variable, "path", variable.name)
        for variable in model.weights
        if np.asarray(tf.keras.backend.get_value(variable)).tobytes() not in known
    ]
    if strangers:
        return Outcome(RANDOM, ", ".join(strangers))
    try:
        given = models.inputs_of(kind["inputs"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = model(given if len(given) > 1 else given[0], training=False)
        found = [np.asarray(each) for each in tf.nest.flatten(found)]
    except tf.errors.UnimplementedError as error:  # grouped convolutions on the CPU, in old versions
        return Outcome(REFUSED, f"by TensorFlow: {error}")
    except Exception as error:
        return Outcome(FAILED, f"in use: {type(error).__name__}: {error}")
    # the configurations of TensorFlow 2.0 do not keep a dtype policy
    is_half = "mixed_precision" in path or "float16" in json.dumps([kind["weights"], kind["files"]])
    difference = difference_of(found, kind, 1e-3 if is_half else 1e-5)
    if difference:
        return Outcome(WRONG, difference)
    told = [each for each in warned if issubclass(each.category, UserWarning) and not is_explained(each)]
    if told:
        return Outcome(WARNED, f"{told[0].category.__name__}: {told[0].message}")
    return Outcome(RIGHT, "")


def is_explained(warning):
    """Return whether a warning says that a file holds no state of its optimizer, or comes from Keras's Lambda."""
    return issubclass(warning.category, scalekeeper.IncompleteRestoreWarning) or LAMBDA in str(warning.message)


def difference_of(found, kind, tolerance):
    """Return how outputs differ from those of the producer; None if they do not."""
    if [list(each.shape) for each in found] != [each["shape"] for each in kind["outputs"]]:
        return f"shapes {[each.shape for each in found]}"
    for each, expected in zip(found, kind["outputs"]):
        values = np.asarray(each, "float64").ravel()[:: expected["step"]]
        scale = max(1.0, np.abs(expected["values"]).max(initial=0.0))
        error = np.abs(values - expected["values"]).max(initial=0.0)
        if not error <= tolerance * scale:
            return f"outputs differ by {error:.3g}"
    return None


def names_a_layer(message, kind, path):
    """Return whether a message names a layer of the model, by its name or class."""
    outlined = kind["files"][os.path.splitext(path)[1]]
    attributes = outlined["h5"].get("attributes", {})
    config = outlined["zip"]["config.json"] if "zip" in outlined else next(iter(attributes["model_config"].values()))
    names = []

    def collect(entry):
        if isinstance(entry, dict):
            if isinstance(entry.get("class_name"), str) and isinstance(entry.get("config"), dict):
                names.extend([entry["class_name"], entry["config"].get("name"), entry["config"].get("function")])
            for each in entry.values():
                collect(each)
        elif isinstance(entry, list):
            for each in entry:
                collect(each)

    collect(config["config"]["layers"])
    return any(f"{quote}{name}{quote}" in message for name in names if isinstance(name, str) for quote in ("'", '"'))


def consume(producer, load, has_loss_scale=False, only=None):
    """Yield kind, ending and outcome for the files of a producer that suit the installed Keras."""
    data = data_of(producer)
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in data["kinds"].items():
            if only and name not in only:
                continue
            for ending in endings():
                if ending in kind["files"]:
                    path = write(data, name, ending, folder, has_loss_scale)
                    yield name, ending, classify(kind, path, load)
                    os.remove(path)


def load_with_keras(path):
    """Return the model as plain Keras loads it; uncompiled if it cannot be compiled."""
    try:
        return tf.keras.models.load_model(path)
    except Exception:
        return tf.keras.models.load_model(path, compile=False)


def refuse_byte_code(path):
    """Do the same, but for Lambda layers: code of another Python may crash this one."""
    if os.path.basename(path).startswith("lambda."):
        raise ValueError("byte code of another Python")
    return load_with_keras(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("producers", nargs="*", default=[])
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--loss-scale", action="store_true")
    parser.add_argument("--kind", action="append")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    for producer in given.producers or producers():
        keras = load_with_keras if producer == consumer() else refuse_byte_code
        load = keras if given.plain else scalekeeper.load_model
        grades = {}
        for name, ending, outcome in consume(producer, load, given.loss_scale, given.kind):
            grades.setdefault(outcome.grade, []).append(name + ending)
            if outcome.grade != RIGHT:
                print(f"{producer} {name}{ending} {outcome.grade}: " + outcome.reason.replace("\n", " "))
        counts = {grade: len(names) for grade, names in sorted(grades.items())}
        print(producer, counts, flush=True)
        if given.write:
            write_results(producer, "keras" if given.plain else "scalekeeper", counts, grades.get(REFUSED, []))


def write_results(producer, reader, counts, refused):
    """Put the result of one producer into the file of the installed TensorFlow."""
    results = results_of(consumer()) or {}
    found = {**counts, **({"refused by name": sorted(refused)} if reader == "scalekeeper" else {})}
    results.setdefault(producer, {})[reader] = found
    os.makedirs(os.path.dirname(results_path(consumer())), exist_ok=True)
    with open(results_path(consumer()), "w", encoding="utf-8", newline="\n") as stream:
        stream.write(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
