"""Name code in every way and at every place, and say what was refused, what was imported, and what else was done.

    python tests/hostile/name_code.py FOLDER STEP

Each line of output is JSON: what was tried, what came of it, and what was done that should not have been. The folder
has modules that nothing has imported; PYTHONPATH has to begin with it. Files and commands are slow: they get every
STEP-th name.
"""

import json
import os
import sys
import tempfile
import warnings
from functools import partial

import h5py
import numpy as np
from click.testing import CliRunner

import scalekeeper
from scalekeeper.cli import main as command
from scalekeeper.registry import _documents, loss_scales, target
from scalekeeper.registry._import_paths import AllowList
from scalekeeper.registry._optimizer_spec import OPTIMIZERS, SCHEDULES
from scalekeeper.serialization import inspection
from scalekeeper.serialization.keras import _optimizer_config
from scalekeeper_test_support import hostile_files, import_spellings, side_effects

NOTHING = _documents.Access()
NEWEST = target("keras3")


def outcome(function, *arguments, **options):
    """``accepted``, or the name of the error; one that is not ours is a failure."""
    try:
        function(*arguments, **options)
    except scalekeeper.ScalekeeperError:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return "accepted"


def run(arguments):
    result = CliRunner().invoke(command, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return repr(result.exception)[:200]
    return {0: "accepted", 1: "refused"}.get(result.exit_code, f"exit code {result.exit_code}")


def write(path, data):
    with open(path, "wb") as stream:
        stream.write(data)
    return path


def files_with(name, folder):
    """A configuration, an H5 file and a .keras file that name it."""
    for number, config in enumerate(import_spellings.configurations_with(name)):
        yield write(os.path.join(folder, f"{number}.json"), import_spellings.as_text(config).encode())
    model = import_spellings.as_text(
        {**import_spellings.model_with(name), "compile_config": {"optimizer": config}}
    ).encode()
    with h5py.File("made.h5", "w", driver="core", backing_store=False) as file:
        file.attrs["model_config"] = np.void(model) if len(model) > 60_000 else model
        file.attrs["training_config"] = import_spellings.as_text({"optimizer_config": config}).encode()
        file.attrs["keras_version"] = import_spellings.as_text(name).encode()
        file.create_group("layers/dense/vars").create_dataset("0", data=np.zeros(2))
        file.create_group("model_weights").attrs["layer_names"] = np.zeros(0, "S1")
        file.flush()
        weights = file.id.get_file_image()
    yield write(os.path.join(folder, "model.h5"), weights)
    archive = hostile_files.Zip()
    archive.add("config.json", model)
    archive.add("metadata.json", import_spellings.as_text({"keras_version": name}).encode())
    archive.add("model.weights.h5", weights)
    yield write(os.path.join(folder, "model.keras"), archive.data())


def ways(name):
    """Everything that takes a name from somebody else: what it is called, and what to do."""
    yield "resolve", partial(outcome, loss_scales.resolve, name)
    for document in import_spellings.documents_with(name):
        source = _documents.Source("doc.yaml", import_spellings.as_text(document))
        yield "a mapping", partial(outcome, _documents.load_document, document)
        yield "a document", partial(outcome, _documents.check_text, source, NEWEST, NOTHING)
        yield "as a policy", partial(outcome, _documents.check_loss_scale, source, NOTHING)
    for config in import_spellings.configurations_with(name):
        yield "a configuration", partial(outcome, _optimizer_config.decode_config, config)


def ways_with_files(name, folder):
    """The same by commands, and in files."""
    document = import_spellings.as_text({"optimizer": "sgd", "loss_scale": name}).encode()
    for path in (os.path.join(folder, "doc.yaml"), os.path.join(folder, "doc.json")):
        write(path, document)
        yield "validate", partial(run, ["validate", path])
        yield "inspect", partial(run, ["inspect", path])
        yield "simulate a file", partial(run, ["simulate", path, "--steps", "10"])
    yield "simulate", partial(run, ["simulate", "--steps", "10", "--", name])
    for source in files_with(name, folder):
        yield os.path.basename(source), partial(outcome, inspection.inspect, source)
        yield "inspect " + os.path.basename(source), partial(run, ["inspect", source])
        if source.endswith(".json"):
            made = os.path.join(folder, "made", "new.json")
            yield "convert", partial(run, ["convert", source, made, "--to", "2.10", "--allow-loss", "--force"])


def tell(what, name, came, seen):
    print(json.dumps([what, name, came, seen]))


def main():
    warnings.simplefilter("ignore")
    canaries, step = sys.argv[1], int(sys.argv[2])
    watcher = side_effects.Watcher()
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        for name in ("dynamic", "漢字"):
            for _, way in (*ways(name), *ways_with_files(name, folder)):
                way()  # what is imported when it is first used
        registered = {*loss_scales.names(), *NEWEST.table[OPTIMIZERS], *NEWEST.table[SCHEDULES]} - {"theirs"}
        for group, names in (("registered", sorted(registered)), ("spelling", import_spellings.names())):
            for number, name in enumerate(names):
                files = ways_with_files(name, folder) if number % step == 0 else ()
                for what, way in (*ways(name), *files):
                    with watcher.watching(folder, may_write=True) as seen:
                        came = way()
                    tell(f"{group}: {what}", name, came, seen)
        for text in import_spellings.tagged_documents():
            source = _documents.Source("doc.yaml", text)
            with watcher.watching() as seen:
                came = outcome(_documents.check_text, source, NEWEST, NOTHING)
            tell("tag", text, came, seen)
        near = AllowList(["package.*"])
        for name in (*import_spellings.for_package(), "package.module:Mine"):
            with watcher.watching(canaries) as seen:
                came = outcome(loss_scales.resolve, name, allow=near.patterns)
            tell("package.* is allowed", name, came, [each for each in seen if each[0] == "import"])
        with watcher.watching(canaries) as seen:
            came = outcome(loss_scales.resolve, "theirs")
        tell("entry point", "theirs", came, [each for each in seen if each[0] == "import"])


if __name__ == "__main__":
    main()
