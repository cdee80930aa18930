"""The tables of signatures hold what the installed TensorFlow really does."""

import pytest
import tensorflow as tf

from scalekeeper import InvalidSpecError
from scalekeeper.registry import target
from scalekeeper.registry._optimizer_spec import OPTIMIZERS, SCHEDULES, argument_model, check_optimizer
from scalekeeper.registry._parameters import checked
from scalekeeper_test_support.repository import load_script

TARGET = target()
# Values of every type, at the limits that fields have. Whichever of them the check accepts, the constructor must take.
CANDIDATES = [True, False, None, 0, 1, 2, 7, 0.0, 0.5, 1.0, 1.5, -0.5, -1, 1e-30, 1e30, 3e38, [1], [1, 5], ["x"], "x"]


RECORD = load_script("compat_tests/registry/record.py")


def class_of(path):
    found = tf.keras
    for part in path.split("."):
        found = getattr(found, part)
    return found


def test_the_table_is_what_is_recorded_here_and_now():
    """Recording again on this TensorFlow gives the table in the package, to the letter."""
    table, name = RECORD.record()
    assert name == TARGET.name
    assert table == TARGET.table


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in (OPTIMIZERS, SCHEDULES) for name in sorted(TARGET.table[kind])]
)
def test_what_the_check_accepts_the_constructor_takes(kind, name):
    """Every argument with every candidate value that passes the check: the real constructor takes it."""
    entry = TARGET.table[kind][name]
    needed = {argument: RECORD.REQUIRED_VALUES[argument] for argument in entry["required"]}
    tried = 0
    for argument in argument_model(kind, name, TARGET).model_fields:
        for value in CANDIDATES:
            try:
                accepted = checked(argument_model(kind, name, TARGET), dict(needed, **{argument: value}), name)
            except InvalidSpecError:
                continue
            class_of(entry["class"])(**dict(needed, **{argument: getattr(accepted, argument)}))
            tried += 1
    assert tried >= len(entry["arguments"]) - 2


@pytest.mark.parametrize("name", sorted(TARGET.table[SCHEDULES]))
def test_a_schedule_works_as_a_learning_rate(name):
    """A document with this schedule gives an optimizer that accepts it."""
    entry = TARGET.table[SCHEDULES][name]
    rate = dict({argument: RECORD.REQUIRED_VALUES[argument] for argument in entry["required"]}, schedule=name)
    spec = check_optimizer({"name": "sgd", "learning_rate": rate}, TARGET)
    schedule = spec.arguments["learning_rate"]
    built = class_of(spec.class_path)(learning_rate=class_of(schedule.class_path)(**schedule.arguments))
    assert (
        built.get_config()["learning_rate"]["class_name"]
        == type(class_of(schedule.class_path)(**schedule.arguments)).__name__
    )


def test_an_argument_that_the_table_does_not_have_is_refused_or_ignored_for_real():
    """The constructor refuses, warns of, or ignores each argument that the check refuses for this target."""
    for name, entry in TARGET.table[OPTIMIZERS].items():
        for argument in sorted(set(RECORD.KEYWORD_PROBES) - set(entry["arguments"])):
            value = RECORD.KEYWORD_PROBES[argument]
            with pytest.raises(InvalidSpecError):
                check_optimizer({"name": name, argument: value}, TARGET)
            made = RECORD.construct(class_of(entry["class"]), {argument: value})
            assert made is None or RECORD.visible(made, argument) != value, (name, argument)
