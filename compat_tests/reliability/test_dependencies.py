"""The requirements of the package and of this TensorFlow are compatible."""

import tensorflow as tf

from scalekeeper_test_support.dependencies import closure, declared, unmet

OF_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "keras", "tf-keras")
# Their typing-extensions are older than what any pydantic 2 accepts, and newer ones work: docs/installing.md
WITH_OLD_TYPING_EXTENSIONS = ("2.4", "2.5", "2.6", "2.12", "2.13")


def test_nothing_is_in_the_way_of_this_tensorflow():
    """The installed packages meet each requirement of scalekeeper, of TensorFlow and of their dependencies."""
    names = [*declared(), *OF_TENSORFLOW]
    assert {"tensorflow", "tensorflow-cpu"} & set(closure(names))
    found = unmet(names)
    is_old = tf.__version__.rpartition(".")[0] in WITH_OLD_TYPING_EXTENSIONS
    assert len([each for each in found if "typing-extensions" in each]) == (1 if is_old else 0), found
    assert [each for each in found if "typing-extensions" not in each] == []
