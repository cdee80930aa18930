"""Wrong arguments raise the classes that the installed version's own LossScaleOptimizer raises for them."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import HAS_LOSS_SCALE_OBJECTS, IS_KERAS_3, UPSTREAM, upstream

SCALE = ("dynamic",) if HAS_LOSS_SCALE_OBJECTS else ()
# arguments → function of a class and an optimizer that constructs with them
CONSTRUCTIONS = {
    "a name": lambda make, sgd: make("sgd", *SCALE),
    "a number": lambda make, sgd: make(3, *SCALE),
    "the class of an optimizer": lambda make, sgd: make(type(sgd), *SCALE),
    "no optimizer": lambda make, sgd: make(None, *SCALE),
    "nothing": lambda make, sgd: make(),
    "loss_scale=None": lambda make, sgd: make(sgd, None),
    "loss_scale=[]": lambda make, sgd: make(sgd, []),
    "loss_scale=object()": lambda make, sgd: make(sgd, object()),
    "dynamic='yes'": lambda make, sgd: make(sgd, dynamic="yes"),
    "dynamic=0": lambda make, sgd: make(sgd, dynamic=0),
    "dynamic=0 and a scale": lambda make, sgd: make(sgd, dynamic=0, initial_scale=8.0),
    "dynamic=numpy.False_ and a scale": lambda make, sgd: make(sgd, dynamic=np.False_, initial_scale=8.0),
    "dynamic=numpy.True_": lambda make, sgd: make(sgd, dynamic=np.True_),
    "dynamic=False": lambda make, sgd: make(sgd, dynamic=False),
    "False": lambda make, sgd: make(sgd, False),
    "a fixed scale that grows": lambda make, sgd: make(sgd, dynamic=False, initial_scale=8, dynamic_growth_steps=3),
    "initial_scale='a'": lambda make, sgd: make(sgd, initial_scale="a"),
    "clipnorm": lambda make, sgd: make(sgd, *SCALE, clipnorm=1.0),
    "use_ema": lambda make, sgd: make(sgd, *SCALE, use_ema=True),
    "learning_rate": lambda make, sgd: make(sgd, *SCALE, learning_rate=0.1),
    "an unknown argument": lambda make, sgd: make(sgd, *SCALE, no_such_argument=1),
}
STEPS = {
    "no pairs": lambda optimizer, variable: optimizer.apply_gradients(3),
    "None": lambda optimizer, variable: optimizer.apply_gradients(None),
    "triples": lambda optimizer, variable: optimizer.apply_gradients([(tf.ones([2]), variable, 1)]),
    "no gradient": lambda optimizer, variable: optimizer.apply_gradients([(None, variable)]),
    "weights that are too few": lambda optimizer, variable: optimizer.set_weights([np.int64(2)]),
    "weights that are not a list": lambda optimizer, variable: optimizer.set_weights(3),
    "an attribute that does not exist": lambda optimizer, variable: optimizer.no_such_attribute,
}


def raised(run, *arguments):
    try:
        run(*arguments)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("arguments", CONSTRUCTIONS)
def test_construction_raises_the_class_of_the_installed_version(optimizers, arguments):
    """Arguments that TensorFlow's class refuses raise its TypeError or ValueError, and an error of scalekeeper."""
    own = raised(CONSTRUCTIONS[arguments], UPSTREAM, optimizers.SGD(1.0))
    ours = raised(CONSTRUCTIONS[arguments], scalekeeper.LossScaleOptimizer, optimizers.SGD(1.0))
    assert isinstance(ours, (TypeError, ValueError))
    has_no_such_argument = HAS_LOSS_SCALE_OBJECTS and "unexpected keyword" in str(own)  # ours has it everywhere
    if isinstance(own, (TypeError, ValueError)) and not has_no_such_argument:
        assert isinstance(ours, type(own))
    is_unknown = "unexpected keyword argument" in str(ours)  # which Python itself says, up to Keras 3
    assert isinstance(ours, scalekeeper.ScalekeeperError) or (is_unknown and not IS_KERAS_3)


@pytest.mark.parametrize("call", STEPS)
def test_a_call_raises_the_class_of_the_installed_version(optimizers, call):
    """Each method that TensorFlow's class has raises the same error in scalekeeper's class."""
    errors = []
    inner = (optimizers.SGD(1.0, momentum=0.5) for _ in range(2))
    for optimizer in (upstream(next(inner)), scalekeeper.LossScaleOptimizer(next(inner))):
        variable = tf.Variable([1.0, 2.0])
        optimizer.apply_gradients([(tf.ones([2]), variable)])
        errors.append(raised(STEPS[call], optimizer, variable))
    own, ours = errors
    assert isinstance(ours, (TypeError, ValueError, AttributeError))
    is_there = not (isinstance(own, AttributeError) and "set_weights" in str(own)) and "not yet been built" not in str(
        own
    )
    if is_there and own is not None and not (isinstance(own, AttributeError) and IS_KERAS_3):
        assert isinstance(ours, type(own))


def test_dynamic_is_a_bool():
    """``dynamic=0`` is not a dynamic scale in silence: the error names the argument and what it may be."""
    with pytest.raises(scalekeeper.WrongArgumentError, match="dynamic must be True or False, got 0"):
        scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), dynamic=0, initial_scale=8.0)


def test_errors_of_both_classes_can_be_copied_and_pickled():
    """The classes that derive from TypeError and ValueError keep their message and problems."""
    with pytest.raises(scalekeeper.InvalidSpecTypeError) as caught:
        scalekeeper.resolve(None)
    for twin in (copy.copy(caught.value), pickle.loads(pickle.dumps(caught.value))):
        assert (str(twin), twin.problems) == (str(caught.value), caught.value.problems)
    error = scalekeeper.WrongArgumentError("wrong")
    assert str(pickle.loads(pickle.dumps(error))) == "wrong"
    assert isinstance(error, (scalekeeper.ArgumentError, scalekeeper.ArgumentTypeError))


@pytest.mark.skipif(not IS_KERAS_3, reason="only Keras 3 has these arguments and attributes")
class TestKeras3:
    def test_arguments_of_optimizers_name_the_remedy(self):
        """An argument of the inner optimizer is refused with the expression that passes it on."""
        with pytest.raises(ValueError, match=r"inner optimizer.*Adam\(clipnorm=1\.0\)"):
            scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), clipnorm=1.0)

    def test_an_unknown_argument_gets_the_valid_ones(self):
        """A misspelt argument is answered with the nearest one."""
        with pytest.raises(scalekeeper.WrongArgumentError, match="did you mean 'dynamic_growth_steps'"):
            scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), dynamic_growth_step=3)

    def test_arguments_with_their_defaults_are_accepted(self):
        """Defaults that older files hold for the wrapper are accepted, as by Keras's own class."""
        defaults = {"clipnorm": None, "use_ema": False, "ema_momentum": 0.99, "gradient_accumulation_steps": None}
        UPSTREAM(tf.keras.optimizers.SGD(1.0), **defaults)
        optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(1.0), 8.0, **defaults)
        assert float(optimizer.loss_scale) == 8.0

    @pytest.mark.parametrize("name", ["iterations", "initial_scale", "dynamic_growth_steps"])
    def test_attributes_that_cannot_be_set_are_not_ignored(self, name):
        """Setting what the policy or the inner optimizer defines raises AttributeError, and changes nothing."""
        optimizer = scalekeeper.LossScaleOptimizer(tf.keras.optimizers.SGD(1.0))
        before = getattr(optimizer, name)
        with pytest.raises(AttributeError, match=name) as caught:
            setattr(optimizer, name, 3)
        assert isinstance(caught.value, scalekeeper.ReadOnlyError)
        assert getattr(optimizer, name) is before or getattr(optimizer, name) == before

    def test_a_subclass_has_its_own_arguments(self):
        """A subclass may take more arguments, and pass on those that it knows."""

        class Named(scalekeeper.LossScaleOptimizer):
            def __init__(self, optimizer, loss_scale="dynamic", *, label, **options):
                super().__init__(optimizer, loss_scale, **options)
                self.label = label

        optimizer = Named(tf.keras.optimizers.SGD(1.0), 8.0, label="one", clipnorm=None)
        assert (optimizer.label, float(optimizer.loss_scale)) == ("one", 8.0)


# Weights of other types


@pytest.mark.parametrize(
    "given",
    [
        [np.float32(2), np.array([3.0, 4.0])],
        [np.int32(2), np.array([3, 4])],
        [2.0, [3.0, 4.0]],
        [tf.constant(2.0), tf.constant([3.0, 4.0], tf.float64)],
    ],
    ids=["floats", "integers", "Python numbers", "tensors"],
)
def test_weights_of_another_type_are_cast(optimizers, given):
    """``set_weights`` casts iterations and slots to the types of the variables, as Keras does."""
    optimizer, variable = scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0, momentum=0.5)), tf.Variable([1.0, 2.0])
    optimizer.apply_gradients([(tf.ones([2]), variable)])
    optimizer.set_weights(given)
    iterations, momentum = optimizer.get_weights()
    assert (int(iterations), momentum.tolist()) == (2, [3.0, 4.0])
    assert momentum.dtype == np.float32


@pytest.mark.parametrize("given", [2.0, np.float32(2), np.int8(2), 2])
def test_the_only_weight_may_have_any_type(optimizers, given):
    """The iterations of an optimizer that has no slots yet are restored from any whole number."""
    optimizer = scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0))
    assert int(optimizer.iterations.numpy()) == 0
    optimizer.set_weights([given])
    assert int(optimizer.iterations.numpy()) == 2


def test_a_fraction_is_not_a_number_of_iterations(optimizers):
    """A list whose first weight is not a whole number belongs to something else, and nothing changes."""
    optimizer, variable = scalekeeper.LossScaleOptimizer(optimizers.SGD(1.0, momentum=0.5)), tf.Variable([1.0, 2.0])
    optimizer.apply_gradients([(tf.ones([2]), variable)])
    before = optimizer.get_weights()
    for wrong in (2.7, float("nan"), True):
        with pytest.raises(scalekeeper.ArgumentError):
            optimizer.set_weights([wrong, np.array([3.0, 4.0])])
    assert [each.tolist() for each in optimizer.get_weights()] == [each.tolist() for each in before]
