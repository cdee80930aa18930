"""Files that nobody should send: real ones that are cut, flipped and spliced, and well-formed ones that mean harm."""

import glob
import io
import os
import struct
import zlib

import h5py
import numpy as np

from scalekeeper_test_support import hostile_values
from scalekeeper_test_support.golden import archives, matrix
from scalekeeper_test_support.repository import repository_path

CORPUS = repository_path("tests", "hostile", "corpus", "files")
KINDS = ("h5", "keras", "npz", "json", "trace")
GOLDEN = [
    ("tensorflow", "tf23", "dynamic-adam/model.h5"),
    ("scalekeeper", "tf215", "custom-sgd/model.h5"),
    ("scalekeeper", "k3", "dynamic-sgd/model.h5"),
    ("tensorflow", "k3", "dynamic-adam/model.keras"),
    ("scalekeeper", "tf215L", "dynamic-adam/model.keras"),
    ("scalekeeper", "tf215", "dynamic-sgd/state.npz"),
    ("tensorflow", "k3", "dynamic-adam/config.json"),
    ("scalekeeper", "tf20", "dynamic-adam/config.json"),
]
_TRACE = (
    b'# {"format": "scalekeeper trace", "version": 1, "limit": 65504.0}\nstep,largest,scale\n0,2.5,128\n1,inf,128\n'
)


# Bytes


def cut_off(rng, data, other):
    return data[: rng.randrange(len(data))]


def with_flipped_bits(rng, data, other):
    broken = bytearray(data)
    for _ in range(rng.choice([1, 1, 3, 20])):
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
    return bytes(broken)


def with_odd_numbers(rng, data, other):
    """Sizes, offsets and counts become the largest, the smallest, or one that is nearly right."""
    broken = bytearray(data)
    for _ in range(rng.choice([1, 2, 4])):
        width = rng.choice([1, 2, 4, 8])
        at = rng.randrange(max(1, len(broken) - width))
        number = rng.choice([0, 1, 2 ** (8 * width) - 1, 2 ** (8 * width - 1) - 1, 2 ** (8 * width - 1), len(data)])
        broken[at : at + width] = (number % 2 ** (8 * width)).to_bytes(width, "little")
    return bytes(broken)


def spliced(rng, data, other):
    """The beginning of one file and the end of another."""
    return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]


def with_a_part_elsewhere(rng, data, other):
    start, length, at = rng.randrange(len(data)), rng.choice([8, 64, 512, 4096]), rng.randrange(len(data))
    return data[:at] + data[start : start + length] + data[at + rng.choice([0, length]) :]


BREAKING = (cut_off, with_flipped_bits, with_odd_numbers, spliced, with_a_part_elsewhere)


def seeds():
    """Kind → real files and those of the corpus."""
    found = {kind: [] for kind in KINDS}
    for cls, flavour, name in GOLDEN:
        with archives.unpacked(matrix.Producer(cls, flavour)) as folder:
            found[_kind(name)].append(_bytes_of(os.path.join(folder, name)))
    found["trace"] += [_TRACE, _npz({"largest": np.ones(3, "<f4"), "scale": np.ones(3, "<f4")})]
    for path in sorted(glob.glob(os.path.join(CORPUS, "*"))):
        found[_kind(path)].append(_bytes_of(path))
    return found


def seeds_of_folders():
    """Name of a folder → its files, by their paths in it: what only TensorFlow reads."""
    found = {"checkpoint": {}, "saved_model": {}}
    with archives.unpacked(matrix.Producer("scalekeeper", "tf215")) as unpacked:
        for name, files in found.items():
            folder = os.path.join(unpacked, "dynamic-adam", name)
            for parent, _, names in os.walk(folder):
                for each in names:
                    path = os.path.join(parent, each)
                    files[os.path.relpath(path, folder)] = _bytes_of(path)
    return found


def generated_folder(rng, known):
    """A folder with one of its files broken: which, and its files. ``known`` are such seeds."""
    name = rng.choice(sorted(known))
    files = dict(known[name])
    broken = rng.choice(sorted(files))
    if files[broken]:
        other = rng.choice([data for folder in known.values() for data in folder.values() if data])
        files[broken] = rng.choice(BREAKING)(rng, files[broken], other)
    if rng.random() < 0.05:
        del files[broken]
    return name, files


def _kind(path):
    """A trace is called so: by its ending it might be one of others."""
    return "trace" if "trace" in os.path.basename(path) else os.path.splitext(path)[1][1:]


def _bytes_of(path):
    with open(path, "rb") as stream:
        return stream.read()


def generated(rng, known):
    """A file: its kind, and its bytes. ``known`` are seeds."""
    kind = rng.choice(KINDS)
    if rng.random() < 0.4:
        data, other = rng.choice(known[kind]), rng.choice(known[rng.choice([kind, kind, *KINDS])])
        return kind, rng.choice(BREAKING)(rng, data or b"\0", other or b"\0")
    return kind, {"h5": h5_file, "keras": keras_file, "npz": npz_file, "json": json_file, "trace": trace_file}[kind](
        rng
    )


# JSON inside files

_INNER = {
    "class_name": "Adam",
    "module": "keras.optimizers",
    "registered_name": None,
    "config": {"name": "Adam", "learning_rate": 0.01, "decay": 0.0, "beta_1": 0.9, "epsilon": 1e-07, "amsgrad": False},
}
_SCHEDULE = {
    "class_name": "ExponentialDecay",
    "config": {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5, "name": None},
}
_POLICY = {
    "class_name": "DynamicLossScale",
    "config": {"initial_loss_scale": 4096.0, "increment_period": 10, "multiplier": 2.0},
}
OPTIMIZERS = [
    {"class_name": "LossScaleOptimizer", "config": {"optimizer": _INNER, "loss_scale": _POLICY}},
    {
        "class_name": "Custom>LossScaleOptimizer",
        "module": "tensorflow.keras",
        "registered_name": "Custom>LossScaleOptimizer",
        "config": {"inner_optimizer": _INNER, "dynamic": True, "initial_scale": 1.0, "dynamic_growth_steps": 5},
    },
    {"class_name": "SGD", "config": {"learning_rate": _SCHEDULE, "momentum": 0.9, "loss_scale_factor": 8.0}},
]
MODEL = {
    "class_name": "Sequential",
    "config": {
        "name": "m",
        "layers": [
            {"class_name": "Dense", "config": {"name": "d1", "units": 2, "activation": "relu", "dtype": "float32"}},
            {"class_name": "Lambda", "config": {"name": "d2", "function": ["4wEAAAA=\n", None, None], "module": "os"}},
        ],
    },
}
RECORD = {
    "version": 1,
    "written_by": {"scalekeeper": "0.1.0", "keras": "3.0.0"},
    "optimizer": OPTIMIZERS[0],
    "iterations": 5,
    "learning_rate": 0.01,
    "loss_scale": {**_POLICY, "state": {"current_loss_scale": 64.0, "good_steps": 3}},
    "skipped_steps": "hold",
    "skips": {"total": 1, "in_a_row": 0, "last": 2, "overflows": {"d1/kernel": 1}},
    "has_bare_momentum": False,
    "scalars": {"momentum_cache": 0.5},
    "owners": {"d1/kernel": [2, 2], "d1/bias": [2]},
}
_FACTS = {"format": "scalekeeper trace", "version": 1, "limit": 65504.0, "written_by": {"scalekeeper": "0.1.0"}}


def _json(rng, value):
    return hostile_values.as_json(rng, hostile_values.mutated(rng, value) if rng.random() < 0.7 else value)


def json_file(rng):
    value = rng.choice(
        [*OPTIMIZERS, OPTIMIZERS[0]["config"], OPTIMIZERS[1]["config"], {**MODEL, "keras_version": "2.3"}]
    )
    return _json(rng, value).encode("utf-8", "surrogatepass")


# HDF5

_VERSIONS = ["2.2.4-tf", "2.4.0", "2.15.0", "3.0.0", "3", "9" * 5000 + ".1", "²³.1", "", "x", None]
_NAMES = ["d1/kernel:0", "d1/bias:0", "kernel", "iter:0", "..", ".", "/", "//", "d1", "", "é", "a" * 300, "0", "²"]
_SHAPES = [(), (1,), (2, 2), (0,), (3, 0, 2), (2,) * 31]
_HUGE = [(10**8,), (2**40,), (2**31, 2**31), (10**9, 1)]
_TYPES = ["<f4", "<f8", "<i8", ">i2", "u1", "bool", "<f2", "S5", "<c8", "V2", "V7", "<M8[s]"]


def h5_file(rng):
    """A model, its weights, or a store of weights; and, here and there, what no Keras writes."""
    with h5py.File("made.h5", "w", driver="core", backing_store=False) as file:
        try:
            _attribute(rng, file, "keras_version", rng.choice(_VERSIONS))
            if rng.random() < 0.6:
                _layers(rng, file.create_group("model_weights"))
            elif rng.random() < 0.5:
                _layers(rng, file)
            else:
                _store(rng, file)
            if rng.random() < 0.7:
                _attribute(rng, file, "model_config", _json(rng, MODEL))
            if rng.random() < 0.7:
                training = {"loss": "mse", "metrics": [], "optimizer_config": rng.choice(OPTIMIZERS)}
                _attribute(rng, file, "training_config", _json(rng, training))
            if rng.random() < 0.5:
                _attribute(rng, file, "scalekeeper", _json(rng, RECORD))
            if rng.random() < 0.2:
                _trap(rng, file)
        except (ValueError, OSError, RuntimeError, TypeError, KeyError, UnicodeError):
            pass  # what HDF5 does not write: the file holds what stands before it
        file.flush()
        return file.id.get_file_image()


def _attribute(rng, group, name, value):
    """Text as Keras writes it, or something else."""
    if value is None:
        return
    roll = rng.randrange(30)
    if roll < 20:
        group.attrs[name] = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    elif roll < 26:
        group.attrs[name] = value
    elif roll == 26:
        group.attrs[name + "0"], group.attrs[name + "1"] = value[:10], value[10:]
    else:
        nothing = h5py.Empty(np.dtype("f"))  # its name alone will not do for h5py 2.10
        odd = [5, float("nan"), b"\xff\xfe", np.zeros((2, 2)), nothing, np.array([b"a", b"b"]), group.ref, True]
        group.attrs[name] = rng.choice(odd)


def _names(rng, group, name, names):
    _attribute(rng, group, name, np.array([each.encode("utf-8") for each in names]) if names else np.zeros(0, "S1"))


def _layers(rng, group):
    """The layout of model.save and save_weights up to Keras 3."""
    layers = rng.choice([["d1"], ["d1", "d2"], ["d1", "d1"], ["..", "d1"], []])
    _names(rng, group, "layer_names", layers)
    for layer in dict.fromkeys(layers):
        inside = group.require_group(layer)
        _weights(rng, inside, rng.choice([["d1/kernel:0", "d1/bias:0"], ["kernel", "bias"], [rng.choice(_NAMES)]]))
    optimizer = group.file.require_group("optimizer_weights")
    prefix = rng.choice(["Adam/", "", "loss_scale_optimizer/", "a/b/"])
    names = [prefix + name for name in ("iter:0", "learning_rate:0", "d1/kernel/m:0", "d1/kernel/v:0")]
    _weights(rng, optimizer, rng.choice([names, [*names, "outer/iteration:0"], [rng.choice(_NAMES), *names], []]))


def _weights(rng, group, names):
    _names(rng, group, "weight_names", names)
    for name in names:
        _dataset(rng, group, name)


def _store(rng, file):
    """The layout of .weights.h5 and .keras files."""
    for place in range(rng.randrange(3)):
        folder = rng.choice(
            ["layers/dense", "_layer_checkpoint_dependencies/dense", f"layers/dense_{place}", "layers/x_²"]
        )
        group = file.require_group(folder + "/vars")
        for number in range(rng.randrange(3)):
            _dataset(rng, group, rng.choice([str(number), "²", "x", "-1"]))
        if rng.random() < 0.3:
            _attribute(rng, group, "name", rng.choice(["d1", "é", "..", "x" * 300]))
    for folder in ("optimizer/vars", "optimizer/inner_optimizer/vars"):
        if rng.random() < 0.6:
            group = file.require_group(folder)
            for number in range(rng.randrange(7)):
                _dataset(rng, group, str(number))
    if rng.random() < 0.3:
        _dataset(rng, file.require_group("scalekeeper_slots/d1/kernel"), "m")


def _dataset(rng, group, name):
    """An array of any type and shape; a huge one is declared, and nothing of it is there."""
    roll = rng.random()
    if roll < 0.6:
        group.create_dataset(
            name, data=rng.choice([np.int64(5), np.float32(0.5), np.zeros((2, 2), "<f4"), np.zeros(2)])
        )
    elif roll < 0.7:
        odd = [
            np.float64("nan"),
            np.float64("inf"),
            np.int64(-(2**63)),
            np.uint64(2**64 - 1),
            b"x",
            "x",
            np.complex64(1j),
        ]
        group.create_dataset(name, data=rng.choice(odd))
    elif roll < 0.9:
        group.create_dataset(name, shape=rng.choice(_SHAPES), dtype=rng.choice(_TYPES))
    elif roll < 0.97:
        chunks, packed = rng.choice([(None, None), ((1000,), None), ((1000,), "gzip")])
        shape = rng.choice(_HUGE)
        chunks = None if chunks is None else chunks + (1,) * (len(shape) - 1)
        group.create_dataset(
            name, shape=shape, dtype=rng.choice(["<f4", "<i8", "u1"]), chunks=chunks, compression=packed
        )
    else:
        kind = rng.choice(
            [h5py.special_dtype(vlen=str), h5py.special_dtype(ref=h5py.Reference), np.dtype([("a", "<i4")])]
        )
        group.create_dataset(name, shape=rng.choice([(), (2,)]), dtype=kind)


def _trap(rng, file):
    """Links that lead around, out, or nowhere; data that is kept in other files."""
    holder = rng.choice([file, file.require_group("model_weights"), file.require_group("layers")])
    name = rng.choice(["d1", "model_weights", "optimizer_weights", "vars", "scalekeeper_slots", "loop"])
    roll = rng.randrange(5)
    if name in holder and holder is not file:
        del holder[name]
    if roll == 0:
        holder[name] = h5py.SoftLink(rng.choice(["/", "/nowhere", "/" + name, "."]))
    elif roll == 1:
        holder[name] = h5py.ExternalLink(rng.choice(["/etc/passwd", "../other.h5", "made.h5"]), "/")
    elif roll == 2:
        for each in dict.fromkeys([name, *rng.sample(["a", "b", "layers", "c"], 2)]):
            if each not in holder:
                holder[each] = rng.choice([file, holder])
    elif roll == 3:
        external = [("/etc/passwd", 0, h5py.h5f.UNLIMITED)]
        holder.create_dataset(name + "/0", shape=(4,), dtype="u1", external=external)
    else:
        group = holder.require_group(name)
        for _ in range(rng.choice([3, 100, 1200])):
            group = group.create_group("layers")


# Zip files


def _npz(arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def _bomb(start, block, times):
    """A text that begins so and goes on with a block, many times over, deflated: a hundred bytes are a megabyte."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    begun = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)  # the same each time: nothing before it counts
    return begun + again * times + packer.flush()


_VAST = b"{'descr': '|u1', 'fortran_order': False, 'shape': (734003200,), }"
BOMBS = [
    _bomb(b"", bytes(2**20), 100),
    _bomb(b"", bytes(2**20), 700),
    _bomb(b'{"a": [', b"[]," * 2**18, 80),
    _bomb(b'{"a": "', b"a" * 2**20, 63),
    _bomb(
        b"\x93NUMPY\x01\x00v\x00{'descr': '|u1', 'fortran_order': False, 'shape': (734003200,), }".ljust(127) + b"\n",
        bytes(2**20),
        700,
    ),
]


class Zip:
    """A zip file, written by hand: so it can say what no program would write."""

    def __init__(self):
        self._members, self._directory, self._count = b"", b"", 0

    def add(self, name, data, method=0, packed=None, check=None, size=None, flags=0, attributes=0):
        """A member; ``packed``, ``check`` and ``size`` are what the archive says and holds, true or not."""
        packed = data if packed is None else packed
        check = zlib.crc32(data) if check is None else check
        size, name = len(data) if size is None else size, name.encode("utf-8", "surrogatepass")
        common = struct.pack("<5H3I2H", 20, flags, method, 0, 0, check, len(packed) % 2**32, size % 2**32, len(name), 0)
        entry = (
            b"PK\x01\x02"
            + struct.pack("<H", 20)
            + common
            + struct.pack("<3H2I", 0, 0, 0, attributes, len(self._members))
        )
        self._directory += entry + name
        self._members += b"PK\x03\x04" + common + name + packed
        self._count += 1

    def data(self):
        end = struct.pack("<4H2IH", 0, 0, self._count, self._count, len(self._directory), len(self._members), 0)
        return self._members + self._directory + b"PK\x05\x06" + end


_PATHS = [
    "../../escaped",
    "/tmp/escaped",
    "C:\\escaped",
    "config.json/",
    "a" * 3000,
    "\x00",
    "con\u202eg.json",
    "config.json",
]
_LINK = 0o120777 << 16


def _zipped(rng, members):
    """Members as they are, or packed, twice, missing, lying about themselves, bombs, links; and some more."""
    made = Zip()
    for name, data in members.items():
        roll = rng.randrange(40)
        if roll == 0:
            continue
        if roll == 1:
            made.add(name, rng.choice([b"", b"{}", b"null", data[:50]]))
        if roll == 2:
            made.add(
                name, b"", method=8, packed=rng.choice(BOMBS), size=rng.choice([0, len(data), 2**32 - 1, 700 * 2**20])
            )
            continue
        lies = {}
        if roll == 3:
            lies = {"size": rng.choice([0, 1, len(data) + 5, 2**31, 2**32 - 1])}
        elif roll == 4:
            lies = {"check": 5}
        elif roll == 5:
            lies = {"method": rng.choice([1, 8, 9, 12, 14, 93, 99])}
        elif roll == 6:
            lies = {"flags": rng.choice([1, 0x41, 0x800, 0x2000, 0x20])}
        elif roll == 7:
            lies = {"attributes": _LINK}
        if roll in (8, 9, 10):
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
            lies = {"method": 8, "packed": packer.compress(data) + packer.flush()}
        made.add(name, data, **lies)
    for _ in range(rng.choice([0, 0, 0, 1, 3])):
        made.add(rng.choice(_PATHS), b"{}", attributes=rng.choice([0, _LINK]))
    return made.data()


def keras_file(rng):
    training = {"loss": "mse", "optimizer": rng.choice(OPTIMIZERS)}
    metadata = {"keras_version": rng.choice(_VERSIONS), "date_saved": "x"}
    if rng.random() < 0.5:
        metadata["scalekeeper"] = RECORD
    members = {
        "metadata.json": _json(rng, metadata).encode("utf-8", "surrogatepass"),
        "config.json": _json(rng, {**MODEL, "compile_config": training}).encode("utf-8", "surrogatepass"),
        "model.weights.h5": h5_file(rng),
    }
    return _zipped(rng, members)


# NumPy's arrays

_HEADERS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (100000000,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (nan,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 2), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (), }",
    "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (2,), }",
    "{'descr': '<U1000000000', 'fortran_order': False, 'shape': (1,), }",
    "{'descr': '<U99999999999999', 'fortran_order': False, 'shape': (), }",
    "{'descr': __import__('antigravity'), 'fortran_order': False, 'shape': (), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
    "{'descr': '<M8[s]', 'fortran_order': True, 'shape': (2,), }",
    "[" * 5000,
    "(" * 90 + ")" * 90,
    "",
]
_PICKLE = b"cantigravity\nfly\n(tR."  # what would be called if it were unpickled


def _array(rng, value):
    """An array as NumPy writes it, or with a header or a content that it would not write."""
    roll = rng.randrange(12)
    if roll == 0:
        header = rng.choice(_HEADERS).encode("utf-8")
        version, length = rng.choice([(1, "<H"), (2, "<I"), (3, "<I"), (9, "<H")])
        size = len(header) if rng.random() < 0.8 else rng.choice([0, 2**16 - 1])
        return (
            b"\x93NUMPY"
            + bytes([version, 0])
            + struct.pack(length, size)
            + header
            + rng.choice([b"", bytes(8), _PICKLE])
        )
    if roll == 1:
        value = rng.choice(
            [np.zeros((0, 3)), np.array("x"), np.array(b"\xff"), np.array(np.nan), np.zeros(2, "V3"), np.array(1j)]
        )
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(value), allow_pickle=False)
    return stream.getvalue()


def npz_file(rng):
    """A training state."""
    record = _json(rng, RECORD).encode("utf-8", "replace").decode("utf-8")
    members = {"record.npy": _array(rng, record)}
    for name in ("slots|d1/kernel|m", "slots|d1/kernel|v", "scalars|momentum_cache", *rng.sample(_NAMES, 1)):
        members[name + ".npy"] = _array(rng, rng.choice([np.zeros((2, 2), "<f4"), np.float64(0.5)]))
    return _zipped(rng, members)


def trace_file(rng):
    """Return what simulate and recommend read: CSV or an .npz file."""
    facts = _json(rng, _FACTS)
    if rng.random() < 0.5:
        members = {"facts.json": facts.encode("utf-8", "surrogatepass")}
        for name in ("largest", "scale", "zero_share"):
            members[name + ".npy"] = _array(rng, rng.choice([np.ones(3, "<f4"), np.zeros(3), np.full(3, np.inf)]))
        return _zipped(rng, members)
    rows = [",".join(str(hostile_values.scalar(rng)) for _ in range(3)) for _ in range(rng.randrange(3))]
    rows += [f"{step},{rng.choice(['2.5', 'inf', 'nan', '-1', '1e400', ''])},128" for step in range(rng.randrange(4))]
    return "\n".join([f"# {facts}", "step,largest,scale", *rows]).encode("utf-8", "surrogatepass")
