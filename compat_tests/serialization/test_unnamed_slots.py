"""Lists of slots without names, as plain Keras writes them: decoded where the order is proven, else refused."""

import contextlib

import h5py
import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper.registry.errors import AssumedOrderWarning, IncompleteRestoreError
from scalekeeper_test_support.installed_keras import IS_KERAS_3, WRITES_KERAS_FILES
from scalekeeper_test_support.unique_numbers import dense_model, fill, numbers_of, slots_of, train

pytestmark = [
    pytest.mark.skipif(not WRITES_KERAS_FILES, reason="this Keras writes no .keras files"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of NumPy, about Keras 3's own variables
]
OPTIONS = {
    "SGD": [{}, {"momentum": 0.5}, {"use_ema": True}],
    "Adam": [{}, {"amsgrad": True}, {"use_ema": True}],
    "RMSprop": [{}, {"momentum": 0.5, "centered": True}, {"centered": True, "use_ema": True}],
    "Adagrad": [{}],
    "Adadelta": [{}],
    "Adamax": [{}],
    "Ftrl": [{}],
    "Nadam": [{}],
    "AdamW": [{}],
    "Adafactor": [{}, {"use_ema": True}],
    "Lion": [{}],
    "Lamb": [{}],
    "Muon": [{}],
}
if IS_KERAS_3:
    OPTIONS["Adam"] += [{"gradient_accumulation_steps": 2}, {"gradient_accumulation_steps": 3, "use_ema": True}]
CASES = [(name, each) for name, options in OPTIONS.items() if hasattr(tf.keras.optimizers, name) for each in options]


def compiled(name, options, **model):
    built = dense_model(**model)
    built.compile(getattr(tf.keras.optimizers, name)(0.25, **options), "mse")
    return built


def trained(name, options, **model):
    built = compiled(name, options, **model)
    train(built)
    fill(built)
    return built


@pytest.mark.parametrize(("name", "options"), CASES)
def test_files_of_plain_keras(name, options, tmp_path):
    """restore and load_model take every slot of every optimizer from a .keras file that plain Keras has written."""
    model = trained(name, options, frozen=["b"])
    model.save(str(tmp_path / "m.keras"))
    expected = numbers_of(model)
    other = compiled(name, options, frozen=["b"])
    scalekeeper.restore(other, tmp_path / "m.keras", partial=True)
    assert numbers_of(other) == expected
    assert numbers_of(scalekeeper.load_model(tmp_path / "m.keras")) == expected


def test_other_layers_are_frozen(tmp_path):
    """The configuration in the file marks the frozen layer; a slot of another layer is not taken for its own."""
    model = trained("Adam", {}, names="abcde", frozen=["b"])
    model.save(str(tmp_path / "m.keras"))
    other = compiled("Adam", {}, names="abcde", frozen=["e"])
    with pytest.raises(IncompleteRestoreError):
        scalekeeper.restore(other, tmp_path / "m.keras")
    scalekeeper.restore(other, tmp_path / "m.keras", partial=True)
    expected, found = numbers_of(model)["slots"], numbers_of(other)["slots"]
    assert all(found[f"{name}/kernel"] == expected[f"{name}/kernel"] for name in "acd")
    assert not np.any([np.max(slot) for slot in found["b/kernel"].values()])


def test_weights_without_a_configuration(tmp_path):
    """Without frozen layers the order is that of the model; with a frozen one among equal ones, nothing is taken."""
    for frozen in ([], ["b"]):
        model = trained("Adam", {}, names="abcde", frozen=frozen)
        path = tmp_path / f"{len(frozen)}.weights.h5"
        model.save_weights(str(path))
        other = compiled("Adam", {}, names="abcde", frozen=frozen)
        with h5py.File(str(path), "r") as file:
            has_slots = "optimizer" in file or "_optimizer" in file
        if not has_slots:  # up to 2.11, which writes the layers only
            with pytest.raises(IncompleteRestoreError):
                scalekeeper.restore(other, path)
        elif frozen:
            with pytest.raises(IncompleteRestoreError, match="save_model"):
                scalekeeper.restore(other, path)
        else:
            with contextlib.ExitStack() if IS_KERAS_3 else pytest.warns(AssumedOrderWarning, match="a, b, c, d, e"):
                scalekeeper.restore(other, path, partial=True)
            assert numbers_of(other)["slots"] == numbers_of(model)["slots"]


@pytest.mark.skipif(IS_KERAS_3, reason="Keras 3 writes the product")
def test_the_product_of_momenta_is_computed(tmp_path):
    """TF 2.11 to 2.15 do not write Nadam's product of momenta; it follows from the iterations, to the bit."""
    model = compiled("Nadam", {"beta_1": 0.8}, names="a")
    train(model, steps=40)
    product = model.optimizer._u_product.numpy()
    for path in (tmp_path / "m.keras", tmp_path / "m.h5"):
        model.save(str(path))
        other = compiled("Nadam", {"beta_1": 0.8}, names="a")
        report = scalekeeper.restore(other, path)
        assert other.optimizer._u_product.numpy() == product
        assert any("product of momenta" in note for note in report.notes)


class Coder(tf.keras.Model):
    """A model whose file names its attributes, and not the order in which they were set."""

    def __init__(self, order, is_named):
        super().__init__()
        for name in order:
            setattr(self, name, tf.keras.layers.Dense(3, **({"name": f"the_{name}"} if is_named else {})))

    def call(self, inputs):
        return self.decoder(self.encoder(inputs))


def trained_coder(order, is_named):
    tf.keras.backend.clear_session()
    model = Coder(order, is_named)
    model.compile(tf.keras.optimizers.SGD(0.25, momentum=0.5), "mse")
    model.fit(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32), verbose=0)
    return model


def momenta_of(model):
    by_shape = [np.asarray(each) for each in model.optimizer.variables if each.shape == (3, 3)]
    owners = [each for each in model.trainable_variables if each.shape == (3, 3)]
    kernels = {name: getattr(model, name).kernel for name in ("encoder", "decoder")}
    return {
        name: by_shape[next(index for index, owner in enumerate(owners) if owner is kernel)].tolist()
        for name, kernel in kernels.items()
    }


@pytest.mark.skipif(not IS_KERAS_3, reason="the files of Keras 2 number the layers of a subclassed model, too")
@pytest.mark.parametrize("is_named", [False, True])
def test_attributes_that_are_set_in_another_order(is_named, tmp_path):
    """Slots are taken if Keras's numbers tell the order, else refused until the caller lists the variables."""
    path = tmp_path / "m.weights.h5"
    model = trained_coder(("encoder", "decoder"), is_named)
    for number, each in enumerate(model.optimizer.variables):
        each.assign(np.arange(np.prod(each.shape)).reshape(each.shape) + 100 * number)
    model.save_weights(path)
    same, other = trained_coder(("encoder", "decoder"), is_named), trained_coder(("decoder", "encoder"), is_named)
    for refused in [other, *([same] if is_named else [])]:
        with pytest.raises(IncompleteRestoreError, match="model.trainable_variables"):
            scalekeeper.restore(refused, path)
    if not is_named:
        scalekeeper.restore(same, path, partial=True)
        assert momenta_of(same) == momenta_of(model)
    order = [*other.encoder.trainable_variables, *other.decoder.trainable_variables]
    scalekeeper.restore(other, path, partial=True, mapping={"optimizer": order})
    assert momenta_of(other) == momenta_of(model)


def test_the_list_of_trained_variables_is_checked(tmp_path):
    """It has variables of the model, each once, and is refused if the file has the names of the slots."""
    model = trained("Adam", {}, names="ab")
    model.save(str(tmp_path / "m.keras"))
    a = model.trainable_variables[0]
    for wrong in ([a, a], [tf.Variable(1.0)]):
        with pytest.raises(scalekeeper.ArgumentError, match="different variables of the model"):
            scalekeeper.restore(model, tmp_path / "m.keras", mapping={"optimizer": wrong})
    scalekeeper.save_model(model, tmp_path / "own.keras", probe=False)
    with pytest.raises(scalekeeper.ArgumentError, match="leave out 'optimizer'"):
        scalekeeper.restore(model, tmp_path / "own.keras", mapping={"optimizer": model.trainable_variables})


@pytest.mark.skipif(IS_KERAS_3, reason="the files of Keras 3 have the attributes")
def test_layers_that_a_file_of_keras_2_numbers(tmp_path):
    """They are taken in order, as Keras does, and a warning names them."""
    path = tmp_path / "m.weights.h5"
    model = trained_coder(("encoder", "decoder"), is_named=True)
    model.save_weights(path)
    for order, at in ((("encoder", "decoder"), "encoder"), (("decoder", "encoder"), "decoder")):
        other = trained_coder(order, is_named=True)
        with pytest.warns(scalekeeper.AssumedOrderWarning, match="the_encoder"):
            report = scalekeeper.restore(other, path, partial=True)
        assert len(report.assumptions) == 1
        assert getattr(other, at).kernel.numpy().tolist() == model.encoder.kernel.numpy().tolist()


def test_a_model_that_was_compiled_without_a_loss(tmp_path):
    """The order of its loop is not known: a warning says how it was taken, unless the caller tells the order."""
    model = dense_model()
    model.compile(tf.keras.optimizers.SGD(0.25, momentum=0.5))
    train(model)
    fill(model)
    model.save(str(tmp_path / "m.keras"))
    other = dense_model()
    other.compile(tf.keras.optimizers.SGD(0.25, momentum=0.5))
    with pytest.warns(scalekeeper.AssumedOrderWarning, match="without a loss"):
        scalekeeper.restore(other, tmp_path / "m.keras")
    assert numbers_of(other)["slots"] == numbers_of(model)["slots"]
    variables = other.trainable_variables
    listed = [*variables[4:], *variables[2:4], *variables[:2]]
    assert not scalekeeper.restore(other, tmp_path / "m.keras", mapping={"optimizer": listed}).assumptions
    assert slots_of(other)["c/kernel"] == slots_of(model)["a/kernel"]
