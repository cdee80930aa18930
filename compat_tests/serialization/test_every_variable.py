"""Every variable of an optimizer, however deep, is in every file of scalekeeper and comes back."""

import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import LossScaleOptimizer
from scalekeeper.testing._optimizer_variables import difference, fill_with_unique_numbers, held_variables
from scalekeeper.testing._optimizer_variables import numbers_of as variable_numbers
from scalekeeper_test_support.installed_keras import IS_KERAS_3, MODEL_SUFFIXES, OPTIMIZERS, inner_of
from scalekeeper_test_support.unique_numbers import dense_model, fill, numbers_of, train

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of NumPy, about Keras 3's own variables
]
SUFFIXES = [*sorted({*MODEL_SUFFIXES, ".h5"}), ".npz"]


class Counters:
    """An object without a base class that holds a variable."""

    def __init__(self):
        self.seen = tf.Variable([1.0, 2.0, 3.0])


def holding(base):
    """Return an optimizer class that holds a second optimizer, an array, a list of arrays and an object with one."""

    class Holding(base):
        def __init__(self, learning_rate=0.25, name="Holding", **kwargs):
            super().__init__(learning_rate, name=name, **kwargs)
            self._optimizer = base(0.5, momentum=0.75)
            self.history = tf.Variable([[1.0, 2.0]])
            self.window = [tf.Variable([3.0]), tf.Variable([4.0])]
            self.more = {"counters": Counters()}

        def apply_gradients(self, grads_and_vars, *args, **kwargs):
            pairs = list(grads_and_vars)
            self._optimizer.apply_gradients([(tf.zeros_like(grad), variable) for grad, variable in pairs])
            return super().apply_gradients(pairs, *args, **kwargs)

        def apply(self, grads, trainable_variables=None):
            self._optimizer.apply([tf.zeros_like(grad) for grad in grads], trainable_variables)
            return super().apply(grads, trainable_variables)

    if hasattr(base, "apply"):
        del Holding.apply_gradients
    else:
        del Holding.apply
    return Holding


def averaging(base):
    """Return an optimizer class without slots whose list is called ``averages`` and its variables ``average``."""

    class Averaging(base):
        def build(self, variables):
            if not getattr(self, "averages", None):
                super().build(variables)
                self.averages = [self.reference(variable) for variable in variables]

        def reference(self, variable):
            if IS_KERAS_3:
                return self.add_variable_from_reference(variable, name="average")
            return self.add_variable_from_reference(variable, "average")

    return Averaging


def values(optimizer):
    """Return all arrays and counters of a Holding optimizer."""
    found = [optimizer.history, *optimizer.window, optimizer.more["counters"].seen]
    return [each.numpy().tolist() for each in found] + [int(optimizer._optimizer.iterations.numpy())]


def nested_slots(model):
    """Return the slots of the optimizer inside."""
    inner = inner_of(model.optimizer)._optimizer
    if hasattr(inner, "get_slot_names"):
        return [inner.get_slot(each, "momentum").numpy().tolist() for each in model.trainable_variables]
    return [each.numpy().tolist() for each in inner.momentums]


def saved(model, suffix, folder):
    path = folder / f"m{suffix}"
    if suffix == ".npz":
        scalekeeper.save_state(model.optimizer, path)
    else:
        scalekeeper.save_model(model, path)
    return path


def base_of(kind):
    return OPTIMIZERS[kind].SGD


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_optimizers_inside_optimizers_and_other_arrays(kind, tmp_path):
    """The slots, iterations and arrays that Keras does not list are restored by load_model and by restore."""
    Holding = holding(base_of(kind))  # noqa: N806

    def compiled():
        model = dense_model()
        model.compile(LossScaleOptimizer(Holding(momentum=0.5), "dynamic"), "mse")
        return model

    model = compiled()
    train(model)
    fill(model, start=1.0)
    inner = inner_of(model.optimizer)
    inner.history.assign([[5000.0, 5001.0]])
    inner.window[0].assign([5002.0])
    inner.window[1].assign([5003.0])
    inner.more["counters"].seen.assign([5004.0, 5005.0, 5006.0])
    expected, arrays, slots = numbers_of(model), values(inner), nested_slots(model)
    assert arrays[-1] == 2
    assert len({number for each in slots for number in np.ravel(each)}) == 36
    for suffix in SUFFIXES:
        path = saved(model, suffix, tmp_path)
        others = [compiled()]
        report = scalekeeper.restore(others[0], path)
        assert report.missing == report.unused == [], suffix
        if suffix != ".npz":
            others.append(scalekeeper.load_model(path, custom_objects={"Holding": Holding}))
        for other in others:
            found = numbers_of(other)
            assert found["slots"] == expected["slots"], suffix
            assert found["iterations"] == expected["iterations"]
            assert values(inner_of(other.optimizer)) == arrays, suffix
            assert nested_slots(other) == slots, suffix


def tracking(base):
    """Return an optimizer class whose second optimizer and array are in a checkpoint."""

    class Tracking(holding(base)):
        def __init__(self, learning_rate=0.25, name="Tracking", **kwargs):
            super().__init__(learning_rate, name=name, **kwargs)
            self.window, self.more = [], {}
            if hasattr(self, "_set_hyper"):  # these optimizers do not track attributes
                self._track_trackable(self._optimizer, "inside")
                self._track_trackable(self.history, "history")

        @property
        def weights(self):
            return super().weights + self._optimizer.weights  # as those of tensorflow-addons do

    if not hasattr(base, "_set_hyper"):
        del Tracking.weights
    return Tracking


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_an_optimizer_in_an_optimizer_in_a_checkpoint(kind, tmp_path):
    """All variables of both come back; what an optimizer without a second one cannot take is named."""
    Tracking = tracking(base_of(kind))  # noqa: N806

    def compiled(is_wrapped, cls=Tracking):
        model = dense_model()
        inner = cls(0.25, momentum=0.5)
        model.compile(LossScaleOptimizer(inner, "dynamic") if is_wrapped else inner, "mse")
        return model, inner

    for is_wrapped in (True, False):
        model, inner = compiled(is_wrapped)
        train(model)
        fill_with_unique_numbers(inner, model)
        path = tf.train.Checkpoint(optimizer=model.optimizer, net=model).save(str(tmp_path / str(is_wrapped)))
        other, found = compiled(is_wrapped)
        report = scalekeeper.restore(other, path)
        assert report.complete, report
        assert difference(variable_numbers(inner, model), variable_numbers(found, other)) == ""
        without, _ = compiled(is_wrapped, base_of(kind))
        with pytest.warns(scalekeeper.IncompleteRestoreWarning):
            report = scalekeeper.restore(without, path)
        name = "inside" if hasattr(inner, "_set_hyper") else "_optimizer"
        assert len([each for each in report.unused if each.endswith(f"/kernel: {name}.momentum")]) == 3


@pytest.mark.skipif("legacy" not in OPTIMIZERS and not IS_KERAS_3, reason="optimizers have slots")
def test_a_slot_list_with_an_unusual_name(tmp_path):
    """A custom slot list keeps its values, whatever it and its variables are called."""
    Averaging = averaging(OPTIMIZERS["default"].SGD)  # noqa: N806

    def compiled():
        model = dense_model()
        model.compile(LossScaleOptimizer(Averaging(0.25, momentum=0.5), "dynamic"), "mse")
        return model

    model = compiled()
    train(model)
    fill(model)
    expected = numbers_of(model)
    assert all(sorted(slots) == ["averages", "momentums"] for slots in expected["slots"].values())
    for suffix in SUFFIXES:
        path = saved(model, suffix, tmp_path)
        other = compiled()
        assert scalekeeper.restore(other, path).missing == [], suffix
        assert numbers_of(other)["slots"] == expected["slots"], suffix
        if suffix != ".npz":
            loaded = scalekeeper.load_model(path, custom_objects={"Averaging": Averaging})
            assert numbers_of(loaded) == expected, suffix
    other = compiled()
    path = tf.train.Checkpoint(optimizer=model.optimizer, net=model).save(str(tmp_path / "checkpoint"))
    assert scalekeeper.restore(other, path).complete
    assert numbers_of(other) == expected


def describing(kind):
    """Return an optimizer class whose configuration holds that of a second optimizer of another class."""
    base = holding(base_of(kind))

    class Describing(base):
        def __init__(self, optimizer, learning_rate=0.25, name="Describing", **kwargs):
            super().__init__(learning_rate, name=name, **kwargs)
            self._optimizer = optimizer

        def get_config(self):
            return {**super().get_config(), "optimizer": OPTIMIZERS["default"].serialize(self._optimizer)}

        @classmethod
        def from_config(cls, config, custom_objects=None):
            config = dict(config)
            inside = config.pop("optimizer")
            return cls(OPTIMIZERS[kind].Adam.from_config(inside["config"]), **config)

    return Describing


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_an_optimizer_in_the_configuration_of_an_optimizer(kind, tmp_path):
    """Slots of both come back, though the configuration in the file names the class of the one inside, too."""
    Describing = describing(kind)  # noqa: N806

    def compiled():
        model = dense_model()
        inner = Describing(OPTIMIZERS[kind].Adam(0.5), momentum=0.5)
        model.compile(LossScaleOptimizer(inner, "dynamic"), "mse")
        return model

    def numbers(model):
        held = held_variables(inner_of(model.optimizer)._optimizer, model)
        return {name: np.array(variable.numpy()) for name, variable in held.items()}

    model = compiled()
    train(model)
    fill(model)
    expected, inside = numbers_of(model), numbers(model)
    assert sum(path.startswith(("_slots", "_momentums", "_velocities")) for path in inside) == 12
    for suffix in SUFFIXES:
        path = saved(model, suffix, tmp_path)
        others = [compiled()]
        assert scalekeeper.restore(others[0], path).missing == [], suffix
        if suffix != ".npz":
            others.append(scalekeeper.load_model(path, custom_objects={"Describing": Describing}))
        for other in others:
            assert numbers_of(other)["slots"] == expected["slots"], suffix
            assert difference(inside, numbers(other)) == "", suffix
