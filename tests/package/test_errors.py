"""Errors that a user can cause derive from ScalekeeperError, and stand in one module."""

import ast
import builtins
import os

import pytest

import scalekeeper
from scalekeeper.registry import errors

HOME = os.path.dirname(scalekeeper.__file__)
BUILT_IN = {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)}
READER = "a reader turns it into an UnreadableFileError"
# The built-in errors that remain, as room → file → error → reason. A room without a line has none.
REMAINING = {
    "": {"__init__.py": {"AttributeError": "the protocol of a module's __getattr__"}},
    "registry": {"_parameters.py": {"ValueError": "pydantic turns it into a problem of an InvalidSpecError"}},
    "lossscales": {
        "_number.py": {"AttributeError": "the protocol of __getattr__", "NotImplementedError": "an abstract method"},
        "contract.py": {"NotImplementedError": "an abstract method"},
    },
    "simulation": {
        "_trace_files.py": {"ValueError": "read_trace turns it into an UnreadableFileError"},
        "_traces.py": {"ValueError": "caught in the same function"},
    },
    "optimizer": {
        "__init__.py": {"AttributeError": "the protocol of a module's __getattr__"},
        "_keras/slotless_optimizers.py": {"NotImplementedError": "an abstract method"},
        "_keras/tf_2_0_to_2_3.py": {"AttributeError": "tells TensorFlow that a method is missing"},
        "loss_scale_optimizer.py": {"NotImplementedError": "an abstract method"},
    },
    "serialization": {
        "_file_resources.py": {"ValueError": READER},
        "_untrusted_hdf5.py": {"KeyError": READER, "ValueError": READER},
        "_zip_members.py": {"ValueError": READER},
        "formats/__init__.py": {"NotImplementedError": "an abstract method"},
        "formats/_keras_weights_h5.py": {"ValueError": READER},
        "formats/_object_graph.py": {"ValueError": READER},
        "formats/_wire_format.py": {"ValueError": READER},
        "formats/npz.py": {"ValueError": READER},
        "formats/saved_model.py": {"ValueError": READER},
        "keras/_optimizer_config.py": {"TypeError": "decode_config turns it into a TranslationError"},
        "keras/profile.py": {
            "AttributeError": "the protocol of __setattr__",
            "NotImplementedError": "an abstract method",
        },
        "_rebuilt_models.py": {"TypeError": "caught in the same function"},
        "training_state.py": {"ValueError": READER},
    },
}
# Errors of scalekeeper that the package handles itself: a caller never sees them.
INTERNAL = {
    "CheckFailedError": "becomes the outcome of a check",
    "NotRun": "becomes the outcome of a check",
    "Refused": "becomes the outcome of a check",
    "UnreadableError": "becomes a DocumentError",
    "UnsupportedStepError": "the step is then called at every step",
    "_DifferError": "becomes the message of a check in another process",
    "_NotProbedError": "becomes the reason why a file has no probe",
    "_NotJsonError": "becomes an UnreadableError",
}


def sources(room):
    """Yield path and syntax tree of every module of a room; "" is the package's own folder."""
    for folder, folders, names in os.walk(os.path.join(HOME, room), followlinks=True):
        if not room:
            folders.clear()
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as stream:
                    yield os.path.relpath(path, os.path.join(HOME, room)).replace(os.sep, "/"), ast.parse(stream.read())


def raised(tree):
    """The names of built-in errors that a module raises."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(error, ast.Name) and error.id in BUILT_IN:
                found.add(error.id)
    return found


def rooms():
    return ["", *sorted(name for name in os.listdir(HOME) if os.path.isfile(os.path.join(HOME, name, "__init__.py")))]


@pytest.mark.parametrize("room", rooms())
def test_no_built_in_error_is_raised_without_a_reason(room):
    """The remaining ones are in the table, with a reason, and the table has no others."""
    found = {path: raised(tree) for path, tree in sources(room)}
    expected = {path: set(reasons) for path, reasons in REMAINING.get(room, {}).items()}
    assert {path: names for path, names in found.items() if names} == expected


def test_the_search_finds_what_it_looks_for():
    """A call, a bare class and a chained error are found; an error of another name is not."""
    text = "raise ValueError('x')\nraise KeyError\nraise OSError() from None\nraise Own('x')\nraise\n"
    assert raised(ast.parse(text)) == {"ValueError", "KeyError", "OSError"}


def error_classes(tree):
    """The names of the classes of a module whose bases have the name of an error."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = {each.name: {base.id for base in each.bases if isinstance(base, ast.Name)} for each in classes}
    return {name for name, names in bases.items() if any(base.endswith(("Error", "Exception")) for base in names)}


@pytest.mark.parametrize("room", rooms())
def test_error_classes_stand_in_one_module(room):
    """Elsewhere there are only those that never leave the package."""
    for path, tree in sources(room):
        if (room, path) != ("registry", "errors.py"):
            assert error_classes(tree) <= set(INTERNAL), (room, path)


def test_every_error_derives_from_ours_and_from_a_built_in_one():
    """So that ``except ScalekeeperError`` catches all, and ``except ValueError`` what it always did."""
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    found = [each for each in classes if issubclass(each, Exception) and not issubclass(each, Warning)]
    assert len(found) > 20
    for each in found:
        assert issubclass(each, errors.ScalekeeperError)
        if each is not errors.ScalekeeperError:
            built_in = next(base for base in each.__mro__ if base.__module__ == "builtins")
            assert built_in not in (Exception, object), each
            assert getattr(scalekeeper, each.__name__) is each
