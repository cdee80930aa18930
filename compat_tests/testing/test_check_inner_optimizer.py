"""The checks of inner optimizers on the installed TensorFlow: Keras's own pass, and broken ones fail their check."""

import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import InvalidSpecError
from scalekeeper.testing import INNER_OPTIMIZER_CHECKS, check_inner_optimizer, inner_optimizer_checks
from scalekeeper.testing._check_runner import outcome_of
from scalekeeper.testing._inner_optimizer import InnerOptimizer
from scalekeeper_test_support.distributed_wrapper import Wire, distributed, shapes
from scalekeeper_test_support.installed_keras import HAS_NEW_OPTIMIZERS, IS_KERAS_3, OPTIMIZERS

BY_NAME = {check.name: check for check in INNER_OPTIMIZER_CHECKS}
KERAS = OPTIMIZERS["default"]
ARGUMENTS = {
    "SGD": {"learning_rate": 0.25, "momentum": 0.5, "nesterov": True},
    "Adam": {"learning_rate": 0.125, "amsgrad": True},
    "RMSprop": {"learning_rate": 0.125, "momentum": 0.5, "centered": True},
    "Nadam": {"learning_rate": 0.125},
    "Ftrl": {"learning_rate": 0.125},
}
WRAPPED = {
    f"{kind}_{name}": lambda kind=kind, name=name: getattr(OPTIMIZERS[kind], name)(**ARGUMENTS[name])
    for kind in OPTIMIZERS
    for name in ARGUMENTS
}
if HAS_NEW_OPTIMIZERS:
    WRAPPED["averaging"] = lambda: KERAS.Adam(
        0.125, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=7, weight_decay=0.25, clipnorm=1.0
    )
if IS_KERAS_3:
    WRAPPED["accumulating"] = lambda: KERAS.SGD(0.25, momentum=0.5, gradient_accumulation_steps=3)


def scheduled():
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.25, 4, 0.5)
    return KERAS.Adam(schedule)


WRAPPED["scheduled"] = scheduled


@pytest.mark.slow(is_divided=True)
@inner_optimizer_checks(sgd=WRAPPED["default_SGD"])
def test_gradient_descent(check):
    """One check of gradient descent with momentum."""
    check()


@pytest.mark.long
@inner_optimizer_checks(**WRAPPED)
def test_keras_optimizers(check):
    """One check of one optimizer of Keras."""
    check()


def test_a_report():
    """check_inner_optimizer returns one outcome for each check, in order, and says why one was not run."""
    left_out = [name for name in BY_NAME if name not in ("new_optimizers", "iterations", "one_exchange", "deep_copy")]
    report = check_inner_optimizer(lambda: KERAS.SGD(0.25), leave_out=left_out)
    assert (report.policy, report.failed, report.refused) == ("SGD", [], [])
    assert [each.check for each in report.outcomes] == list(BY_NAME)
    assert [each.check for each in report.passed] == ["new_optimizers", "iterations", "deep_copy"]
    (exchange,) = [each for each in report.not_run if "left out" not in each.message]
    assert exchange.message.startswith("SGD has none of these methods of its own: get_gradients")


class Changing(KERAS.SGD):
    """Changes gradients while it applies them."""

    def changed(self, grad):
        return grad

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        pairs = [(self.changed(grad), variable) for grad, variable in grads_and_vars]
        return super().apply_gradients(pairs, *args, **kwargs)

    def apply(self, grads, trainable_variables=None):
        return super().apply([self.changed(grad) for grad in grads], trainable_variables)


if hasattr(KERAS.SGD, "apply"):
    del Changing.apply_gradients
else:
    del Changing.apply


def is_in_branch():
    return not tf.executing_eagerly() and "cond" in getattr(tf.compat.v1.get_default_graph(), "name", "")


class DoublesInABranch(Changing):
    def changed(self, grad):
        return grad * 2.0 if is_in_branch() else grad


class DoublesSparseGradientsInABranch(Changing):
    def changed(self, grad):
        return tf.convert_to_tensor(grad) * 2.0 if is_in_branch() and isinstance(grad, tf.IndexedSlices) else grad


HIDDEN = {}


class HidesAVariable(Changing):
    """Keeps a variable in the module, where nobody finds it, and multiplies gradients by it."""

    def __init__(self, learning_rate=0.25, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self.token = tf.Variable(0.0)
        HIDDEN[id(self.token)] = tf.Variable(1.0)

    def changed(self, grad):
        return grad * HIDDEN[id(self.token)].assign_add(0.5)


class LeavesOutAnArgument(Changing):
    def __init__(self, learning_rate=0.25, factor=1.0, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self.factor = factor

    def changed(self, grad):
        return grad * self.factor


class OtherIterations(KERAS.SGD):
    """Counts steps twice."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.counter = tf.Variable(7, dtype=tf.int64)

    @property
    def iterations(self):
        return self.__dict__.get("counter", tf.Variable(5, dtype=tf.int64))

    @iterations.setter
    def iterations(self, value):
        pass


class CountsWhileItBuilds(KERAS.SGD):
    """Counts the calls of the method that makes slots, which a skipped step calls, too."""

    def __init__(self, learning_rate=0.25, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self.built_so_far = tf.Variable(0)

    def _create_slots(self, var_list):
        self.built_so_far.assign_add(1)
        return super()._create_slots(var_list)

    def build(self, var_list):
        self.built_so_far.assign_add(1)
        return super().build(var_list)


class ReplacesNaN(KERAS.SGD):
    """Hides non-finite gradients from the decision."""

    def aggregate_gradients(self, grads_and_vars):
        return [(tf.where(tf.math.is_finite(grad), grad, 0.0), variable) for grad, variable in grads_and_vars]


if HAS_NEW_OPTIMIZERS:
    del CountsWhileItBuilds._create_slots
else:
    del CountsWhileItBuilds.build

EXCHANGES = []


class ExchangesLate(Changing):
    """Exchanges gradients after the decision."""

    def changed(self, grad):
        if not EXCHANGES:
            EXCHANGES.append(tf.Variable(0))
        EXCHANGES[0].assign_add(1)
        return grad


ONE_OBJECT = []


def one_object():
    ONE_OBJECT[:] = ONE_OBJECT or [KERAS.SGD(0.25)]
    return ONE_OBJECT[0]


SKIPPED = (
    (ReplacesNaN, "of 1 steps with a non-finite gradient, 0 were skipped, in a tf.function. Do not replace")
    if IS_KERAS_3
    else (CountsWhileItBuilds, "built_so_far is ")
)
FILES = [name for name in BY_NAME if name.startswith("state_in_") and not (IS_KERAS_3 and name.endswith("saved_model"))]
BROKEN = [
    ("new_optimizers", one_object, "the function returned one optimizer twice. Construct a new optimizer"),
    (
        "equal_training",
        DoublesInABranch,
        "at step 0, in a tf.function, with the loss scale 32768 (dynamic), first/b",
    ),
    ("sparse_gradients", DoublesSparseGradientsInABranch, "with the loss scale 32768 (dynamic), first/kernel is "),
    ("skipped_steps", *SKIPPED),
    ("iterations", OtherIterations, "iterations"),
    ("equal_in_fit", DoublesInABranch, "after fit with the loss scale 32768 (dynamic), first/bias is "),
    ("from_config", lambda: LeavesOutAnArgument(factor=2.0), "at step 0 of an optimizer that from_config made, first/"),
    ("deep_copy", HidesAVariable, "of a copy of copy.deepcopy, first/bias is "),
    ("pickled", HidesAVariable, "of a copy of pickle, first/bias is "),
    *((name, HidesAVariable, " is ") for name in FILES),
]


@pytest.mark.slow(is_divided=True)
@pytest.mark.parametrize(("name", "make", "message"), BROKEN, ids=[case[0] for case in BROKEN])
def test_a_broken_optimizer_fails_its_check(name, make, message):
    """The message says what was seen, and what to do."""
    outcome, _ = outcome_of(BY_NAME[name], InnerOptimizer(make))
    assert outcome.status == "failed"
    assert message in outcome.message


def test_an_exchange_after_the_decision_fails():
    """A skipped step exchanges nothing: other workers would wait for it."""
    EXCHANGES.clear()
    subject = InnerOptimizer(ExchangesLate, exchanges=lambda: int(EXCHANGES[0].numpy()) // 6 if EXCHANGES else 0)
    outcome, _ = outcome_of(BY_NAME["one_exchange"], subject)
    assert outcome.status == "failed"
    assert "a skipped step, in a tf.function, exchanged gradients 0 times. Exchange gradients in one" in outcome.message


@pytest.mark.each_environment  # which wrappers there are depends on the version
@pytest.mark.parametrize(
    ("kind", "shape"), [(kind, shape) for kind in OPTIMIZERS for shape in shapes(OPTIMIZERS[kind].SGD(0.5))]
)
def test_an_exchange_before_the_decision_passes(kind, shape):
    """A wrapper of Horovod's shape exchanges gradients once in each step, by the methods that scalekeeper calls."""
    subject = InnerOptimizer(lambda: distributed(OPTIMIZERS[kind].SGD(0.5), shape, Wire()))
    outcome, error = outcome_of(BY_NAME["one_exchange"], subject)
    assert outcome.status == "passed", (outcome, error)


@pytest.mark.skipif(not shapes(KERAS.SGD(0.5)), reason="optimizers of 2.0 and 2.1 have no method to average in")
def test_a_wrapper_with_the_name_of_its_class():
    """If the file names the class of Keras instead, the message tells the two apart."""
    shape = shapes(KERAS.SGD(0.5))[0]
    outcome, _ = outcome_of(BY_NAME["from_config"], InnerOptimizer(lambda: distributed(KERAS.SGD(0.5), shape, Wire())))
    assert outcome.status == "failed"
    assert "made an optimizer of another class with the name SGD of the configuration of a SGD" in outcome.message


def test_a_loss_scale_optimizer_is_refused():
    """It is not an inner optimizer: one error, and no check runs."""
    with pytest.raises(InvalidSpecError, match="return its inner optimizer"):
        check_inner_optimizer(lambda: scalekeeper.LossScaleOptimizer(KERAS.SGD(0.5), 8))


def test_there_is_a_broken_optimizer_for_each_check():
    """Also for one that is added."""
    assert {name for name, _, _ in BROKEN} | {"one_exchange"} | set(FILES) == set(BY_NAME) - (
        {"state_in_saved_model"} if IS_KERAS_3 else set()
    )


def test_an_optimizer_that_cannot_be_pickled_is_refused():
    """The outcome names Python's own error; it is not a failure, and not counted as passed."""

    class Local(KERAS.SGD):
        pass

    left_out = [name for name in BY_NAME if name != "pickled"]
    report = check_inner_optimizer(lambda: Local(0.25), leave_out=left_out)
    assert (report.passed, report.failed) == ([], [])
    ((name, status, message),) = report.refused
    assert (name, status) == ("pickled", "refused")
    assert message.startswith("PicklingError: ")
    assert report.summary() == f"Local: 0 passed, 0 failed, {len(BY_NAME) - 1} not run, 1 refused"


def test_an_error_of_the_optimizer_is_a_failure():
    """The message has its text, and what must hold."""

    class Raising(Changing):
        def changed(self, grad):
            raise ZeroDivisionError("oh")

    with pytest.raises(scalekeeper.BrokenContractError) as caught:
        check_inner_optimizer(lambda: Raising(0.25), leave_out=[name for name in BY_NAME if name != "equal_training"])
    ((name, message),) = caught.value.failures
    assert name == "equal_training"
    assert "oh" in message
    assert "What must hold: With a loss scale of 1 and of 2^15" in message


def test_a_function_may_take_the_model():
    """It gets the model that the optimizer trains, with three layers of known names."""
    names = []

    def make(model):
        names.append([layer.name for layer in model.layers][-3:])
        return KERAS.SGD(0.25)

    check_inner_optimizer(make, leave_out=[name for name in BY_NAME if name != "new_optimizers"])
    assert names[0] == ["first", "second", "third"]
