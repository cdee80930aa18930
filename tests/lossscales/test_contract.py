"""The contract of policies, both sides of it."""

import copy
import inspect
import pickle

import numpy as np
import pytest

from scalekeeper import (
    ArgumentTypeError,
    DynamicLossScale,
    FixedLossScale,
    InvalidSpecError,
    LossScale,
    LossScaleParams,
    Report,
)
from scalekeeper.lossscales import TolerantLossScale, advance
from scalekeeper.lossscales._numpy_state import OPS, measure
from scalekeeper.lossscales.contract import _largest_to_grow, grown


class Drifting(LossScale):
    """A step that forgets that constants have a type."""

    def initial_state(self):
        return {"current_loss_scale": np.float32(8)}

    def next_state(self, state, report, ops):
        return {"current_loss_scale": np.float64(state["current_loss_scale"]) * 2}


class Renaming(Drifting):
    def next_state(self, state, report, ops):
        return {"scale": state["current_loss_scale"]}


def test_a_step_that_changes_a_type_is_refused():
    """The message says which constant to write how."""
    with pytest.raises(
        TypeError, match=r"'current_loss_scale' from float32 into float64: write constants as ops.float32"
    ):
        Drifting().update([])


def test_a_step_that_changes_a_name_is_refused():
    """A graph could not do it, so a simulation must not."""
    with pytest.raises(TypeError, match=r"\['current_loss_scale'\] into \['scale'\]"):
        Renaming().update([])


def test_a_class_without_a_step_says_what_is_missing():
    """LossScale itself is not a policy."""
    with pytest.raises(NotImplementedError, match="LossScale has neither next_state"):
        LossScale().update([])


def test_a_class_in_tensorflows_style_works():
    """Overriding __call__ and update alone makes a policy; its constructor need not call ours."""

    class Halving(LossScale):
        def __init__(self, start=8.0):
            self.value = start

        def __call__(self):
            return self.value

        def update(self, grads):
            self.value /= 2
            return None, True

        def get_config(self):
            return {"start": self.value}

    loss_scale = Halving.from_config(Halving(16.0).get_config())
    loss_scale.update([])
    assert loss_scale() == 8.0


def test_only_what_is_needed_is_measured():
    """A policy that does not ask for a figure does not pay for it."""
    grads = [np.array([0.0, -4.0]), None, np.array([[0.0, 2.0]])]
    assert measure(grads, frozenset()) == Report(None, None, None)
    assert measure(grads, frozenset({"finite"})) == Report(True, None, None)
    assert measure(grads, frozenset({"largest_magnitude", "zero_share"})) == Report(None, 4.0, 0.5)


def test_load_state_refuses_what_does_not_fit_and_changes_nothing():
    """Every problem is named at once, and the old state stays."""
    loss_scale = DynamicLossScale()
    with pytest.raises(InvalidSpecError) as caught:
        loss_scale.load_state({"current_loss_scale": float("nan"), "god_steps": 1})
    assert [problem.path for problem in caught.value.problems] == [
        ("good_steps",),
        ("current_loss_scale",),
        ("god_steps",),
    ]
    assert loss_scale.state() == {"current_loss_scale": 32768.0, "good_steps": 0}


@pytest.mark.parametrize("value", [1.5, True, "1", None, 2**63, float("inf")])
def test_a_counter_must_be_a_whole_number(value):
    """good_steps is an int64 and nothing else."""
    with pytest.raises(InvalidSpecError, match="good_steps"):
        DynamicLossScale().load_state({"current_loss_scale": 8.0, "good_steps": value})


def test_parameters_are_frozen():
    """Nobody can change a policy's parameters behind its state's back."""
    with pytest.raises(ValueError, match="frozen"):
        DynamicLossScale().params.multiplier = 3.0


def test_the_signature_shows_the_parameters():
    """help() and editors see the real parameters."""
    assert list(inspect.signature(FixedLossScale).parameters) == ["loss_scale_value", "skip_nonfinite"]


def test_too_many_and_double_arguments():
    """Calling it wrongly is a TypeError, as with any constructor."""
    with pytest.raises(TypeError, match="3 values were given"):
        FixedLossScale(1, True, 2)
    with pytest.raises(TypeError, match="got \\['loss_scale_value'\\] twice"):
        FixedLossScale(1, loss_scale_value=2)


def test_repr_shows_state_and_parameters():
    """As in TensorFlow: the state, TensorFlow's parameters, and others that do not have their defaults."""
    policy = DynamicLossScale(8, 2, maximum=64)
    beginning = "DynamicLossScale(current_loss_scale={}, num_good_steps={}, initial_loss_scale=8.0, "
    end = "increment_period=2, multiplier=2.0, maximum=64.0)"
    assert repr(policy) == beginning.format("8.0", 0) + end
    policy.update([float("nan")])
    policy.update([1.0])
    assert repr(policy) == beginning.format("4.0", 1) + end
    assert repr(FixedLossScale(8)) == "FixedLossScale(8.0)"
    assert repr(FixedLossScale(8, skip_nonfinite=True)) == "FixedLossScale(8.0, skip_nonfinite=True)"


def test_repr_of_a_class_with_its_own_constructor():
    """A policy that has neither parameters nor a configuration can be printed."""

    class Own(LossScale):
        def __init__(self):
            pass

        def __call__(self):
            return np.float32(2)

        def update(self, grads):
            return None, True

    assert repr(Own()) == "Own()"


def test_parameters_of_tensorflow_are_attributes():
    """Of each policy that has them; an attribute that a class or an object sets takes precedence."""

    class Tripling(DynamicLossScale):
        multiplier = 3.0

    policy = DynamicLossScale(8, 5, 4)
    assert (policy.initial_loss_scale, policy.increment_period, policy.multiplier) == (8.0, 5, 4.0)
    assert (type(policy.initial_loss_scale), type(policy.increment_period)) == (float, int)
    assert TolerantLossScale(16.0).initial_loss_scale == 16.0
    assert Tripling().multiplier == 3.0
    policy.multiplier = 7.0
    assert (policy.multiplier, policy.params.multiplier) == (7.0, 4.0)
    with pytest.raises(AttributeError):
        FixedLossScale(8).multiplier  # noqa: B018


NESTS = [
    (lambda good, bad: bad, False),
    (lambda good, bad: np.array([[good, bad]]), False),
    (lambda good, bad: {"kernel": [good, None], "bias": (good, {"more": bad})}, False),
    (lambda good, bad: iter([good, bad]), False),
    (lambda good, bad: {"kernel": good}.values(), True),
    (lambda good, bad: [None, [good, None]], True),
    (lambda good, bad: None, True),
]


@pytest.mark.parametrize(("nest", "expected"), NESTS)
def test_update_takes_any_nest(nest, expected):
    """One gradient or many, in lists, tuples, dictionaries and iterators; None stands for no gradient."""
    policy = DynamicLossScale(8)
    assert bool(policy.update(nest(1.0, float("inf")))[1]) is expected
    assert policy.state()["current_loss_scale"] == (8.0 if expected else 4.0)


@pytest.mark.parametrize("grads", ["kernel", ["kernel"], {"a": [b"kernel"]}])
def test_texts_are_no_gradients(grads):
    """They are refused with a TypeError, and do not count as finite; the state stays."""
    loss_scale = DynamicLossScale(8)
    with pytest.raises(ArgumentTypeError):
        loss_scale.update(grads)
    assert loss_scale.state() == {"current_loss_scale": 8.0, "good_steps": 0}


def test_errors_survive_pickling():
    """An error that crosses a process, as in a worker pool, keeps its problems."""
    with pytest.raises(InvalidSpecError) as caught:
        FixedLossScale(0)
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


def test_advance_leaves_parameters_of_a_subclass_alone():
    """A policy of the user's own with its own Params gets them validated and uses them in the step."""

    class Stepping(LossScale):
        class Params(LossScaleParams):
            by: float = 3.0

        def initial_state(self):
            return {"current_loss_scale": np.float32(1)}

        def next_state(self, state, report, ops):
            return {"current_loss_scale": state["current_loss_scale"] + ops.float32(self.params.by)}

    state, applied = advance(Stepping(by=4), Stepping().initial_state(), Report(finite=np.bool_(True)))
    assert (state["current_loss_scale"], bool(applied)) == (5.0, True)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_a_copy_has_a_state_of_its_own(copied):
    """It goes on from where the policy was, and the policy does not go with it."""
    policy = DynamicLossScale(initial_loss_scale=8, increment_period=7)
    policy.update([1.0])
    twin = copied(policy)
    twin.update([float("nan")])
    assert twin.get_config() == policy.get_config()
    assert policy.state() == {"current_loss_scale": 8.0, "good_steps": 1}
    assert twin.state() == {"current_loss_scale": 4.0, "good_steps": 0}
    assert copied(DynamicLossScale()).state() == {"current_loss_scale": 32768.0, "good_steps": 0}


@pytest.mark.parametrize("factor", [1.0000001, 1.5, 2.0, 3.0, 7.3, 1e30, 3e38, 1e39])
def test_a_scale_grows_if_the_product_is_finite(factor):
    """Without a maximum it grows up to the last number whose product is finite, and stays from the next one on."""
    largest = np.float32(_largest_to_grow(factor))
    numbers = [np.nextafter(largest, np.float32(0)), largest, np.nextafter(largest, np.float32(np.inf)), np.float32(1)]
    with np.errstate(over="ignore"):
        for number in (each for each in numbers if each > 0):
            product = number * np.float32(factor)
            assert grown(number, factor, None, OPS) == (product if np.isfinite(product) else number)


@pytest.mark.parametrize(
    "arguments",
    [{"unknown": 1}, {"initial_loss_scale": None}, {"increment_period": []}, {"multiplier": "two"}],
)
def test_arguments_of_a_wrong_name_or_type_are_type_errors(arguments):
    """An unknown name and a value that is not a number raise TypeError, as in Python, and ValueError."""
    for make in (lambda: DynamicLossScale(**arguments), lambda: DynamicLossScale.from_config(arguments)):
        with pytest.raises(TypeError) as caught:
            make()
        assert isinstance(caught.value, InvalidSpecError)
        assert [problem.path for problem in caught.value.problems] == [tuple(arguments)]


def test_a_missing_argument_is_a_type_error():
    """A fixed loss scale needs a value; a value out of range is a ValueError alone."""
    with pytest.raises(TypeError, match="loss_scale_value"):
        FixedLossScale()
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (its class is asserted)
        FixedLossScale(-1.0)
    assert not isinstance(caught.value, TypeError)
