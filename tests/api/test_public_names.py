"""The front door: what it offers, and what it costs."""

import ast
import importlib
import subprocess
import sys

import pytest

import scalekeeper

ROOMS = (
    "scalekeeper",
    "scalekeeper.registry",
    "scalekeeper.lossscales",
    "scalekeeper.diagnosis",
    "scalekeeper.serialization",
    "scalekeeper.simulation",
    "scalekeeper.testing",
    "scalekeeper.cli",
)


def fresh(code):
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()


IN_TENSORFLOW = (
    "LossScaleLogger",
    "LossScaleOptimizer",
    "ModelCheckpoint",
    "SharedLossScale",
    "TraceRecorder",
    "custom_objects",
    "diagnose",
)


def test_every_public_name_is_there():
    """Each name resolves to an object, and dir() shows it; seven need TensorFlow, and compat_tests look at them."""
    for name in scalekeeper.__all__:
        if name not in IN_TENSORFLOW:
            assert getattr(scalekeeper, name) is not None
    assert dir(scalekeeper) == sorted(scalekeeper.__all__)


def test_type_checkers_see_the_same_names():
    """The names that are resolved at run time are those imported for type checkers."""
    with open(scalekeeper.__file__, encoding="utf-8") as stream:
        tree = ast.parse(stream.read())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen | {"__version__"} == set(scalekeeper.__all__)


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "scalekeeper.serialization"])
def test_every_public_package_has_all(room):
    """``__all__`` lists names that exist, each once; and names what the package itself defines or re-exports."""
    module = importlib.import_module(room)
    assert len(set(module.__all__)) == len(module.__all__) > 0
    for name in module.__all__:
        if room != "scalekeeper":  # see above
            assert hasattr(module, name), name


def test_an_unknown_name_is_an_attribute_error():
    """As with any module."""
    with pytest.raises(AttributeError, match="module 'scalekeeper' has no attribute 'nothing'"):
        getattr(scalekeeper, "nothing")  # noqa: B009


def test_importing_it_imports_next_to_nothing():
    """Neither pydantic nor NumPy, let alone TensorFlow, before a name is used."""
    code = "import sys, scalekeeper; print(sorted({'pydantic', 'numpy', 'yaml', 'click', 'rich'} & set(sys.modules)))"
    assert fresh(code) == "[]"


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_but_the_optimizers_imports_tensorflow(room):
    """Neither TensorFlow nor Keras is imported, also where they are installed; nor is rich before it is needed."""
    found = fresh(
        f"import sys, {room}; print(sorted({{'tensorflow', 'keras', 'tf_keras', 'rich'}} & set(sys.modules)))"
    )
    assert found == "[]"


def test_resolving_and_building_need_no_tensorflow():
    """Using the registry, the policies and documents leaves TensorFlow alone."""
    code = """
import sys, scalekeeper
scalekeeper.load_document("examples/train.yaml")
scalekeeper.resolve("dynamic").update([1.0])
scalekeeper.document_schema(scalekeeper.load_document({"optimizer": "sgd"}).target)
print(sorted({"tensorflow", "keras", "tf_keras"} & set(sys.modules)))
"""
    assert fresh(code) == "[]"
