"""Whether a file proves the order of a model's variables: no other order that it allows has the same shapes."""

import pytest

from scalekeeper.serialization._variable_order import OWN, Step, is_only_order

KERNEL, BIAS, OTHER = (3, 3), (3,), (5, 5)


def dense(*steps, shapes=(KERNEL, BIAS)):
    return [((*steps, Step(OWN, index)), shape) for index, shape in enumerate(shapes)]


def is_proven(*layers):
    variables = [each for layer in layers for each in layer]
    return is_only_order([position for position, _ in variables], [shape for _, shape in variables])


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([dense(Step("a", 0)), dense(Step("b", 0))], False),  # attributes, in any order
        ([dense(Step("a", 0)), dense(Step("b", 0), shapes=(KERNEL,))], True),
        ([dense(Step("a", 0)), dense(Step("b", 0), shapes=(OTHER, BIAS))], True),
        ([dense(Step("dense", 0)), dense(Step("dense", 1))], True),  # numbered by Keras
        ([dense(Step("dense", 0)), dense(Step("mine", 0)), dense(Step("dense", 1))], False),
        ([dense(Step("a", 0, "dense")), dense(Step("b", 0, "dense_1"))], True),
        ([dense(Step("a", 0, "dense_1")), dense(Step("b", 0, "dense"))], False),
        ([dense(Step("a", 0, "dense")), dense(Step("b", 0, "mine_1"))], False),
        ([dense(Step("a", 0), shapes=(KERNEL,)), dense(Step("b", 0), shapes=(KERNEL, KERNEL))], False),
        ([dense(), dense(Step("a", 0))], True),  # a layer's own variables, and those of a layer in it
        ([dense(Step("a", 0), Step("x", 0)), dense(Step("a", 0), Step("y", 0))], False),
        ([dense(Step("a", 0), Step("x", 0)), dense(Step("b", 0), Step("x", 0), shapes=(OTHER,))], True),
    ],
)
def test_the_order_is_proven_or_not(layers, expected):
    """By the numbers of Keras, or because every other order has other shapes."""
    assert is_proven(*layers) is expected


def test_inner_and_outer_layers_change_together():
    """Two layers whose inner ones are the other way round each: exchanging all of them gives the same shapes."""
    a = [*dense(Step("a", 0), Step("x", 0), shapes=(KERNEL,)), *dense(Step("a", 0), Step("y", 0), shapes=(BIAS,))]
    b = [*dense(Step("b", 0), Step("x", 0), shapes=(BIAS,)), *dense(Step("b", 0), Step("y", 0), shapes=(KERNEL,))]
    assert not is_proven(a, b)


def test_many_layers():
    """A search that would take too long counts as undecided; a long chain is quick."""
    assert is_proven(*(dense(Step("dense", number)) for number in range(300)))
    assert not is_proven(
        *(dense(Step(f"a{number}", 0), shapes=(KERNEL,) * (number % 5 + 1) + (BIAS,)) for number in range(40))
    )
