"""A plain ``tf.train.Checkpoint``, or ``model.load_weights``, reads the files of every version in full.

The files are golden ones (``compat_tests/golden``): five steps of training, one of them skipped.
"""

import contextlib
import json
import os

import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper import LossScaleOptimizer
from scalekeeper.serialization.formats import checkpoint
from scalekeeper_test_support.golden import archives, matrix, scenario
from scalekeeper_test_support.installed_keras import IS_KERAS_3, InexpressibleError, inner_of, number, upstream

pytestmark = pytest.mark.each_environment

KINDS = {
    "legacy": ("tf20", "tf21", "tf22", "tf23", "tf24e", "tf24", "tf210", "tf215L", "tfkL"),
    "new": ("tf210x", "tf215", "tfk"),
    "Keras 3": ("k3",),
}
KIND_OF = {flavour: kind for kind, flavours in KINDS.items() for flavour in flavours}
HERE = [flavour for flavour in scenario.installed_flavours() if flavour != "tf24e"]
# one producer of each form of tree; test_golden.py reads a checkpoint of every one
CASES, WRITERS = [("dynamic", "adam")], ("tf20", "tf23", "tf210x", "tf215", "k3")
if "SCALEKEEPER_WHOLE" in os.environ:
    CASES += [("dynamic", "rmsprop"), ("fixed", "sgd"), ("custom", "adam")]
    WRITERS = tuple(matrix.FLAVOURS)


def _files(is_wanted):
    """Consumer, producer, policy and optimizer of the golden files whose kinds of optimizers are wanted together."""
    return [
        pytest.param(consumer, producer, policy, optimizer, id=f"{producer.name} {policy}-{optimizer} to {consumer}")
        for consumer in HERE
        for producer in matrix.producers()
        if producer.flavour in WRITERS
        for policy, optimizer in CASES
        if is_wanted(KIND_OF[producer.flavour], KIND_OF[consumer]) and policy in matrix.policies(*producer)
    ]


SAME_KIND = pytest.mark.parametrize(
    ("consumer", "producer", "policy", "optimizer"), _files(lambda writer, reader: writer == reader)
)
OTHER_KIND = pytest.mark.parametrize(
    ("consumer", "producer", "policy", "optimizer"), _files(lambda writer, reader: writer != reader)
)


@pytest.fixture(scope="module")
def golden():
    """Unpacks each producer's files when they are first asked for."""
    folders = {}
    with contextlib.ExitStack() as stack:

        def folder_of(producer, policy, optimizer):
            if producer not in folders:
                folders[producer] = stack.enter_context(archives.unpacked(producer))
            return os.path.join(folders[producer], f"{policy}-{optimizer}")

        yield folder_of


def expected_in(folder):
    with open(os.path.join(folder, "expected.json"), encoding="utf-8") as stream:
        return json.load(stream)


def built(flavour, policy, optimizer):
    """A fresh model, and ours with a learning rate that no file has."""
    model = scenario.make_model()
    ours = scenario.make_optimizer(matrix.OURS, flavour, policy, optimizer)
    ours.learning_rate = 0.5
    return model, ours


# Ways to restore


def read(root, folder):
    """As ``restore`` does, without making the counter of ``Checkpoint.save``, which the golden files don't have."""
    return (getattr(root, "read", None) or root._saver.restore)(folder + "/checkpoint/checkpoint")


def existing(model, optimizer, folder):
    """All variables exist before."""
    scenario.make_variables(optimizer, list(model.trainable_variables))
    return read(tf.train.Checkpoint(model=model, optimizer=optimizer), folder)


def deferred(model, optimizer, folder):
    """The optimizer's variables come after."""
    return read(tf.train.Checkpoint(model=model, optimizer=optimizer), folder)


def optimizer_first(model, optimizer, folder):
    return read(tf.train.Checkpoint(optimizer=optimizer, model=model), folder)


def attached_later(model, optimizer, folder):
    """The optimizer comes to the model's checkpoint when that was restored."""
    root = tf.train.Checkpoint(model=model)
    status = read(root, folder)
    root.optimizer = optimizer
    return status


def compiled_before(model, optimizer, folder):
    """load_weights of a compiled model."""
    model.compile(optimizer=optimizer, loss="mse")
    model.load_weights(folder + "/saved_model/variables/variables")


def compiled_after(model, optimizer, folder):
    model.load_weights(folder + "/saved_model/variables/variables")
    model.compile(optimizer=optimizer, loss="mse")


CHECKPOINTS = [existing, deferred, optimizer_first, attached_later]
WEIGHTS = [] if IS_KERAS_3 else [compiled_before, compiled_after]  # in TensorFlow's format, which Keras 3 can't read


@pytest.mark.parametrize("restore", [*CHECKPOINTS, *WEIGHTS])
@SAME_KIND
def test_all_of_a_file_of_the_same_kind_comes_back(golden, restore, consumer, producer, policy, optimizer):
    """Iterations, hyperparameters, slots, loss scale and what a skipped step does; and training goes on equally."""
    folder = golden(producer, policy, optimizer)
    expected = expected_in(folder)
    model, ours = built(consumer, policy, optimizer)
    restore(model, ours, folder)
    scenario.make_variables(ours, list(model.trainable_variables))
    seen = scenario.seen(model, ours, optimizer)
    assert {part: seen[part] for part in seen} == {part: expected[part] for part in seen}
    rate = scenario.HYPERPARAMETERS[optimizer]["learning_rate"]
    assert number(ours.learning_rate) == pytest.approx(rate, rel=1e-6)
    if policy != "fixed":  # where nothing is skipped
        assert ours.skipped_steps == expected["skipped_steps"]
    scenario.train(model, ours, policy, scenario.SAVED_AFTER + 1, scenario.LAST)
    after = scenario.seen(model, ours, optimizer)
    assert after["iterations"] == expected["after"]["iterations"]
    assert scenario.difference(after["weights"], expected["after"]["weights"]) < 1e-6


@pytest.mark.parametrize("policy", ["fixed", "dynamic"])
@pytest.mark.parametrize("flavour", ["tf20", "tf23", "tf215", "k3"])
def test_a_file_tells_whether_a_skipped_step_counts(golden, flavour, policy):
    """By its tree alone, also where it is that of a bare optimizer, as Keras 3 has it with a fixed scale."""
    folder = golden(matrix.Producer(matrix.OWN, flavour), policy, "adam")
    contents = checkpoint.read(folder + "/checkpoint/checkpoint")
    assert contents.skipped_steps == ("hold" if flavour in matrix.HOLDING else "advance")
    assert contents.skipped_steps == expected_in(folder)["skipped_steps"]


@pytest.mark.parametrize("restore", CHECKPOINTS)
@SAME_KIND
def test_nothing_in_a_file_is_left_over(golden, restore, consumer, producer, policy, optimizer):
    """TensorFlow's own check finds that all values in the file are used, and that no variable has gone without."""
    if producer == (matrix.OWN, "k3") and policy == "fixed":
        pytest.skip("Keras 3 has a fixed scale in the bare optimizer")
    model, ours = built(consumer, policy, optimizer)
    status = restore(model, ours, golden(producer, policy, optimizer))
    scenario.make_variables(ours, list(model.trainable_variables))
    status.assert_consumed()


@pytest.mark.parametrize("restore", [existing, deferred, attached_later])
@OTHER_KIND
def test_a_file_of_another_kind_is_refused_with_advice(golden, restore, consumer, producer, policy, optimizer):
    """Legacy optimizers, new ones and those of Keras 3 keep their state in other ways: restore() is what translates."""
    model, ours = built(consumer, policy, optimizer)
    with pytest.raises(ValueError, match=r"call scalekeeper.restore\(model, path\) instead"):
        restore(model, ours, golden(producer, policy, optimizer))


# On the installed version


def trained(make, flavour, optimizer):
    model = scenario.make_model()
    made = make(scenario.make_inner(flavour, optimizer))
    scenario.train(model, made, "fixed", 1, 2)
    return model, made


def keys_in(path):
    return {name for name, _ in tf.train.list_variables(path)}


def own(loss_scale):
    return lambda inner: upstream(inner, loss_scale)


def ours(loss_scale):
    named = {"name": "dynamic", **loss_scale} if isinstance(loss_scale, dict) else loss_scale
    return lambda inner: LossScaleOptimizer(inner, named)


LOSS_SCALES = pytest.mark.parametrize(
    "loss_scale", [128.0, {"initial_loss_scale": 1024.0, "increment_period": 3}], ids=["fixed", "dynamic"]
)


@LOSS_SCALES
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("flavour", HERE)
def test_ours_is_written_as_their_own(tmp_path, flavour, optimizer, loss_scale):
    """The keys are those of TensorFlow's own class, which reads the file to the last value; and the other way round."""
    try:
        their_model, theirs = trained(own(loss_scale), flavour, optimizer)
    except InexpressibleError:
        pytest.skip("Keras 3 has a fixed scale in the bare optimizer")
    our_model, mine = trained(ours(loss_scale), flavour, optimizer)
    their_file = tf.train.Checkpoint(model=their_model, optimizer=theirs).save(str(tmp_path / "theirs"))
    our_file = tf.train.Checkpoint(model=our_model, optimizer=mine).save(str(tmp_path / "ours"))
    assert keys_in(our_file) == keys_in(their_file)

    for make, file in ((own(loss_scale), our_file), (ours(loss_scale), their_file)):
        model = scenario.make_model()
        made = make(scenario.make_inner(flavour, optimizer))
        status = tf.train.Checkpoint(model=model, optimizer=made).restore(file)
        scenario.make_variables(made, list(model.trainable_variables))
        status.assert_consumed()
        assert number(inner_of(made).iterations) == 2


@pytest.mark.skipif(IS_KERAS_3, reason="its weights files are H5")
@LOSS_SCALES
@pytest.mark.parametrize("flavour", HERE)
def test_weights_are_written_as_their_own(tmp_path, flavour, loss_scale):
    """save_weights of a compiled model has the keys of TensorFlow's own class."""
    found = []
    for name, make in (("theirs", own(loss_scale)), ("ours", ours(loss_scale))):
        model, made = trained(make, flavour, "adam")
        model.compile(optimizer=made, loss="mse")
        model.save_weights(str(tmp_path / name), save_format="tf")
        found.append(keys_in(str(tmp_path / name)))
    assert found[0] == found[1]


@pytest.mark.parametrize("restore", CHECKPOINTS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("flavour", HERE)
def test_a_bare_optimizers_file_is_read(tmp_path, restore, flavour, optimizer):
    """Adding loss scaling to a run keeps its iterations, hyperparameters and slots."""
    model, bare = trained(lambda inner: inner, flavour, optimizer)
    tf.train.Checkpoint(model=model, optimizer=bare).write(str(tmp_path / "checkpoint" / "checkpoint"))
    expected = scenario.seen(model, bare, optimizer)
    fresh, wrapped = built(flavour, "dynamic", optimizer)
    restore(fresh, wrapped, str(tmp_path))
    scenario.make_variables(wrapped, list(fresh.trainable_variables))
    seen = scenario.seen(fresh, wrapped, optimizer)
    assert {part: seen[part] for part in ("iterations", "slots", "weights")} == {
        part: expected[part] for part in ("iterations", "slots", "weights")
    }
    assert number(wrapped.learning_rate) == pytest.approx(scenario.HYPERPARAMETERS[optimizer]["learning_rate"])
    assert seen["state"] == {"current_loss_scale": 1024.0, "good_steps": 0}


def towers():
    """A model of two models whose layers have equal names and shapes."""
    models, inputs = [], tf.keras.Input((3,))
    for name in ("user", "item"):
        start = tf.keras.Input((3,))
        inner = tf.keras.layers.Dense(3, name="fc2")(tf.keras.layers.Dense(3, name="fc1")(start))
        models.append(tf.keras.Model(start, inner, name=name))
    return tf.keras.Model(inputs, tf.keras.layers.add([model(inputs) for model in models]))


def test_tensorflows_class_reads_a_checkpoint_with_names_of_models(tmp_path):
    """TensorFlow's own class passes over the names of nested models that scalekeeper writes: nothing is left over."""
    data = tf.reshape(tf.range(24.0), (8, 3)) / 24
    written, read = towers(), towers()
    optimizers = {}
    for model, wrap in ((written, LossScaleOptimizer), (read, upstream)):
        optimizers[model] = wrap(tf.keras.optimizers.Adam(0.01), "dynamic")
        model.compile(optimizers[model], "mse")
        model.fit(data, data, epochs=2 if model is written else 1, verbose=0)
    path = tf.train.Checkpoint(model=written, optimizer=optimizers[written]).save(str(tmp_path / "checkpoint"))
    status = tf.train.Checkpoint(model=read, optimizer=optimizers[read]).restore(path)
    status.assert_existing_objects_matched()
    for expected, actual in zip(written.get_weights(), read.get_weights()):
        assert expected.tolist() == actual.tolist()
    assert int(number(inner_of(optimizers[read]).iterations)) == 2


@pytest.mark.parametrize("loss_scale", [8.0, "dynamic"])
def test_nested_models_do_not_hide_the_optimizer(loss_scale, tmp_path):
    """The optimizer's state of a checkpoint with the names of nested models is restored, whatever its policy."""
    data = tf.reshape(tf.range(24.0), (8, 3)) / 24
    written, read = towers(), towers()
    for model, epochs in ((written, 2), (read, 1)):
        model.compile(LossScaleOptimizer(tf.keras.optimizers.SGD(0.01), loss_scale), "mse")
        model.fit(data, data, epochs=epochs, verbose=0)
    path = tf.train.Checkpoint(model=written).save(str(tmp_path / "checkpoint"))
    assert scalekeeper.restore(read, path).complete
    assert int(number(read.optimizer.iterations)) == 2
