"""A model file can name other files on the disk: HDF5 has links and arrays that are kept elsewhere. None is opened."""

import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support import small_model
from scalekeeper_test_support.installed_keras import IS_KERAS_3, MODEL_SUFFIXES

SECRET = np.arange(4, dtype="float32") + 0.5
SUFFIXES = [".h5", *(suffix for suffix in MODEL_SUFFIXES if suffix == ".keras")]
WEIGHTS = "model.weights.h5"  # in a .keras file


def compiled():
    model = small_model.build()
    adam = tf.keras.optimizers.Adam()
    model.compile(scalekeeper.LossScaleOptimizer(adam, "dynamic"), loss="mse")
    return model


@pytest.fixture(scope="module", params=SUFFIXES)
def good(request, tmp_path_factory):
    """A file as it is written."""
    path = tmp_path_factory.mktemp("good") / f"model{request.param}"
    model = compiled()
    small_model.train(model, 1)
    scalekeeper.save_model(model, path)
    return path


def keep_elsewhere(file, group, secret):
    """Let the array of a layer's biases be four numbers of another file."""
    bias = next(name for name in arrays_in(file[group]) if "bias" in name or name == "vars/1")
    del file[f"{group}/{bias}"]
    file[group].create_dataset(bias, SECRET.shape, "float32", external=[(str(secret), 0, SECRET.nbytes)])


def link_inside(file, group, secret):
    """The same behind a link, where whoever follows none does not see it."""
    keep_elsewhere(file, group, secret)
    file.move(group, "elsewhere")
    file[group] = h5py.SoftLink("/elsewhere")


def link_outside(file, group, secret):
    """A layer of another model."""
    with h5py.File(f"{secret}.h5", "w") as other:
        file.copy(group, other, "elsewhere")
    del file[group]
    file[group] = h5py.ExternalLink(f"{secret}.h5", "/elsewhere")


def virtual(file, group, secret):
    """An array that is made of another one's parts."""
    with h5py.File(f"{secret}.h5", "w") as other:
        other["numbers"] = SECRET
    bias = next(name for name in arrays_in(file[group]) if "bias" in name or name == "vars/1")
    del file[f"{group}/{bias}"]
    layout = h5py.VirtualLayout(SECRET.shape, "float32")
    layout[:] = h5py.VirtualSource(f"{secret}.h5", "numbers", SECRET.shape, "float32")
    file[group].create_virtual_dataset(bias, layout)


def arrays_in(group):
    names = []
    group.visititems(lambda name, member: names.append(name) if isinstance(member, h5py.Dataset) else None)
    return names


def first_layer(file):
    if "model_weights" in file:
        return "model_weights/d1"
    return next(name for name in ("layers/dense", "_layer_checkpoint_dependencies/dense") if name in file)


@pytest.fixture(params=[keep_elsewhere, link_inside, link_outside, virtual], ids=lambda change: change.__name__)
def hostile(request, good, tmp_path):
    """A copy of the good file with something in it that stands in another file."""
    secret, path = tmp_path / "secret", tmp_path / good.name
    secret.write_bytes(SECRET.tobytes())
    weights = path if good.suffix == ".h5" else tmp_path / WEIGHTS
    if weights == path:
        path.write_bytes(good.read_bytes())
    else:
        with zipfile.ZipFile(good) as archive:
            archive.extract(WEIGHTS, tmp_path)
    with h5py.File(weights, "a") as file:
        request.param(file, first_layer(file), secret)
    if weights != path:
        with zipfile.ZipFile(good) as archive, zipfile.ZipFile(path, "w") as new:
            for name in archive.namelist():
                if name == WEIGHTS:
                    new.write(weights, name)
                else:
                    new.writestr(name, archive.read(name))
    return path


def test_a_good_file_loads(good):
    """Keras itself writes nothing that is refused here."""
    loaded = scalekeeper.load_model(good)
    assert int(loaded.optimizer.iterations.numpy()) == 1


@pytest.mark.parametrize("options", [{}, {"compile": False}], ids=["compiled", "bare"])
def test_load_model_refuses_it(hostile, options):
    """An error that names the place, before Keras opens the file: it would read the other one."""
    with pytest.raises(scalekeeper.UnreadableFileError):
        scalekeeper.load_model(hostile, **options)


def test_restore_reads_nothing_else(hostile):
    """An error, or a report in which that layer is missing, and its numbers are what they were."""
    model = compiled()
    before = model.layers[1].bias.numpy()
    try:
        report = scalekeeper.restore(model, hostile)
    except (scalekeeper.UnreadableFileError, scalekeeper.IncompleteRestoreError):
        pass
    else:
        assert any("d1" in name for name in report.missing), report
    assert model.layers[1].bias.numpy().tolist() == before.tolist()


def test_keras_2_alone_would_read_it(tmp_path):
    """Without this the tests above could pass because the files are harmless. Keras 3 refuses this one."""
    path, secret = tmp_path / "model.h5", tmp_path / "secret"
    secret.write_bytes(SECRET.tobytes())
    small_model.build().save(str(path))
    with h5py.File(path, "a") as file:
        link_inside(file, "model_weights/d1", secret)
    if IS_KERAS_3:
        with pytest.raises(ValueError, match="Not allowed"):
            tf.keras.models.load_model(str(path))
    else:
        assert tf.keras.models.load_model(str(path)).layers[1].bias.numpy().tolist() == SECRET.tolist()
