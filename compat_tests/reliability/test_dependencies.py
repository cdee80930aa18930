"""What the package needs and what this TensorFlow needs go together."""

from scalekeeper_test_support.dependencies import closure, declared, unmet

OF_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "keras", "tf-keras")


def test_nothing_is_in_the_way_of_this_tensorflow():
    """Each requirement of ours, of TensorFlow's and of all that they need is met by what is installed."""
    names = [*declared(), *OF_TENSORFLOW]
    assert {"tensorflow", "tensorflow-cpu"} & set(closure(names))
    assert unmet(names) == []
