"""From a specification to an object."""

import fractions

import numpy as np
import pytest

from scalekeeper import DynamicLossScale, FixedLossScale, InvalidSpecError, LossScale, resolve, temporary_registration


def problems(spec, **options):
    with pytest.raises(InvalidSpecError) as caught:
        resolve(spec, **options)
    return [(problem.path, problem.kind) for problem in caught.value.problems]


def test_a_name():
    """A registered name gives an object with its defaults."""
    assert resolve("dynamic").get_config() == DynamicLossScale().get_config()


@pytest.mark.parametrize("number", [128, 128.0, np.float32(128), np.int64(128), fractions.Fraction(128)])
def test_a_number_is_a_fixed_scale(number):
    """Any library's real number will do."""
    loss_scale = resolve(number)
    assert (type(loss_scale), loss_scale()) == (FixedLossScale, 128.0)


def test_a_mapping():
    """The name chooses, the rest are parameters; the mapping stays as it was."""
    spec = {"name": "dynamic", "initial_loss_scale": 4096, "increment_period": 500}
    assert resolve(spec).get_config() == DynamicLossScale(4096, 500).get_config()
    assert spec == {"name": "dynamic", "initial_loss_scale": 4096, "increment_period": 500}


def test_a_class():
    """A class gives an object with its defaults, registered or not."""

    class Mine(DynamicLossScale):
        pass

    assert type(resolve(DynamicLossScale)) is DynamicLossScale
    assert type(resolve(Mine)) is Mine


def test_an_object_is_itself():
    """An object is used as it is, with its state."""
    loss_scale = DynamicLossScale()
    assert resolve(loss_scale) is loss_scale


def test_an_object_that_is_not_ours_but_behaves_alike():
    """An object with TensorFlow's contract, such as TensorFlow's own LossScale, passes as it is."""

    class Foreign:
        def __call__(self):
            return 1.0

        def update(self, grads):
            return None, True

    foreign = Foreign()
    assert resolve(foreign) is foreign


@pytest.mark.parametrize("spec", [None, True, False, [], ["dynamic"], object(), b"dynamic", 1j, int, set()])
def test_what_is_no_specification(spec):
    """Anything else is refused with one problem that says what is possible."""
    found = problems(spec)
    assert [path for path, _ in found] == [()]
    assert found[0][1] in ("not_a_spec", "not_a_plugin")


@pytest.mark.parametrize("number", [0, -1, 0.5, float("nan"), float("inf"), -float("inf"), 1e39, 10**400, -(10**400)])
def test_numbers_that_can_not_be_a_fixed_scale(number):
    """A fixed scale is at least 1 and finite in float32."""
    assert [path for path, _ in problems(number)] == [()]


def test_an_unknown_name_says_all_there_is_to_say():
    """The name, the nearest one, all valid ones, and the two ways to add one."""
    with pytest.raises(InvalidSpecError) as caught:
        resolve("dynamik")
    message = str(caught.value)
    assert (
        "unknown loss scale 'dynamik'; did you mean 'dynamic'? Valid: adaptive_window, dynamic, dynamic/apex, "
        in message
    )
    assert ", dynamic/tf1_contrib, fairseq, fixed, log_max, none, scheduled, static, tolerant." in message
    assert "@scalekeeper.register" in message
    assert "import path 'package.module:Class'" in message


def test_a_number_in_quotes_is_recognised():
    """ "128" is not a number, but the message shows what was meant."""
    with pytest.raises(InvalidSpecError, match="A number is written without quotes"):
        resolve("128")


@pytest.mark.parametrize("key", ["a;b", "é", 5, None, ("x",)])
def test_a_parameter_that_is_no_name(key):
    """A key of any kind is shown unchanged."""
    with pytest.raises(InvalidSpecError) as caught:
        resolve({"name": "dynamic", key: 1})
    assert repr(key) in str(caught.value)


def test_parameter_problems_are_all_found():
    """One error lists everything that is wrong."""
    spec = {"name": "dynamic", "multiplier": 1, "increment_perod": 3, "minimum": "1"}
    assert problems(spec) == [
        (("multiplier",), "greater_than_equal"),
        (("minimum",), "float_type"),
        (("increment_perod",), "extra_forbidden"),
    ]


def test_a_mapping_without_a_usable_name():
    """The problem points at the name where there is one."""
    assert problems({}) == [((), "missing")]
    assert problems({"name": 5}) == [(("name",), "name")]
    assert problems({"name": None}) == [(("name",), "name")]
    assert problems({"name": "nothing"}) == [(("name",), "unknown_name")]


@pytest.mark.parametrize("value", [3.0, 3])
def test_a_whole_float_is_a_count(value):
    """JSON has one number type: 3.0 counts as well as 3."""
    assert resolve({"name": "dynamic", "increment_period": value}).params.increment_period == 3


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "3", None, 2**63, 1e300, float("nan")])
def test_what_is_no_count(value):
    """increment_period is a whole number from 1 to what int64 holds."""
    assert [path for path, _ in problems({"name": "dynamic", "increment_period": value})] == [("increment_period",)]


@pytest.mark.parametrize("value", [1, 1.0, 1.00000001, 0.5, -2, True, "2", None, 1e39])
def test_a_multiplier_that_would_not_multiply(value):
    """Greater than 1, also after rounding to float32."""
    assert [path for path, _ in problems({"name": "dynamic", "multiplier": value})] == [("multiplier",)]


@pytest.mark.parametrize("value", [0, -1, 1e-46, True, "1"])
def test_a_floor_that_is_no_floor(value):
    """Positive, also after rounding to float32."""
    assert [path for path, _ in problems({"name": "dynamic", "minimum": value})] == [("minimum",)]


class Plain(LossScale):
    """A class without Params: what it takes is what its constructor says."""

    def __init__(self, start, factor=2, share: float = 0.5, label="x", count: int = 3, anything=None):
        self.values = (start, factor, share, label, count, anything)

    def __call__(self):
        return self.values[0]

    def update(self, grads):
        return None, True


class Open(Plain):
    def __init__(self, start=1.0, **others):
        super().__init__(start)
        self.others = others


@pytest.fixture
def plain():
    with temporary_registration("plain", Plain), temporary_registration("open", Open):
        yield


@pytest.mark.usefixtures("plain")
class TestParametersFromAConstructor:
    """Classes without Params, in TensorFlow's style."""

    def test_values_reach_the_constructor_as_they_are(self):
        """Checked, not converted; a whole float becomes a count."""
        spec = {"name": "plain", "start": 8, "factor": 3, "share": 1, "label": "y", "count": 4.0, "anything": [1]}
        values = resolve(spec).values
        assert values == (8, 3, 1.0, "y", 4, [1])
        assert [type(value) for value in values[:5]] == [int, int, float, str, int]

    def test_a_required_argument_is_required(self):
        """As the constructor has it."""
        assert problems("plain") == [((), "missing")]

    def test_types_follow_annotations_and_defaults(self):
        """An argument with the default 2 takes a number, one with "x" takes text."""
        spec = {"name": "plain", "start": 1, "factor": "3", "share": True, "label": 5, "count": 2.5}
        assert [path for path, _ in problems(spec)] == [("factor",), ("share",), ("label",), ("count",)]

    def test_unknown_arguments_are_refused_unless_the_constructor_takes_any(self):
        """**kwargs in the constructor is what it says."""
        assert problems({"name": "plain", "start": 1, "other": 1}) == [(("other",), "extra_forbidden")]
        assert resolve({"name": "open", "other": 1}).others == {"other": 1}

    def test_a_constructor_that_refuses(self):
        """An exception of the user's constructor becomes a problem, with its text."""

        class Refusing(Plain):
            def __init__(self, start=1.0):
                raise ValueError("only on Sundays")

        with pytest.raises(InvalidSpecError, match="Refusing refused its parameters: ValueError: only on Sundays"):
            resolve(Refusing)
