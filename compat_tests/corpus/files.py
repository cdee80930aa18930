"""Files of Keras without their weights: everything else as it was written, and where each weight belongs.

``outline`` reads a file that holds the weights of ``models.weight``; ``write`` makes the file again. Both know H5 and
``.keras``, and need no TensorFlow.
"""

import io
import json
import lzma
import os
import zipfile

import h5py
import numpy as np

WEIGHTS_IN_ZIP = "model.weights.h5"


def outline(path, arrays):
    """Return what a file holds, ready for JSON; arrays that are in ``arrays`` are their indices."""
    indices = {_key(array): index for index, array in reversed(list(enumerate(arrays)))}
    if not zipfile.is_zipfile(path):
        with h5py.File(path, "r") as file:
            return {"h5": _outline_of_group(file, indices)}
    with zipfile.ZipFile(path) as archive:
        weights = io.BytesIO(archive.read(WEIGHTS_IN_ZIP))
        texts = {name: json.loads(archive.read(name)) for name in ("metadata.json", "config.json")}
    with h5py.File(weights, "r") as file:
        return {"zip": texts, "h5": _outline_of_group(file, indices)}


def write(outlined, arrays, path):
    """Write the file of an outline."""
    if "zip" not in outlined:
        with h5py.File(path, "w") as file:
            _write_group(file, outlined["h5"], arrays)
        return
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        _write_group(file, outlined["h5"], arrays)
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in outlined["zip"].items():
            archive.writestr(name, json.dumps(value))
        archive.writestr(WEIGHTS_IN_ZIP, weights.getvalue())


def _key(array):
    array = np.asarray(array)
    return array.shape, str(array.dtype), array.tobytes()


def _outline_of_group(group, indices):
    attributes = {name: _outline_of_attribute(value) for name, value in group.attrs.items()}
    members = {}
    for name, member in group.items():
        members[name] = (
            _outline_of_group(member, indices)
            if isinstance(member, h5py.Group)
            else _outline_of_array(member[()], indices)
        )
    return {**({"attributes": attributes} if attributes else {}), **({"members": members} if members else {})}


def _outline_of_array(array, indices):
    found = indices.get(_key(array))
    array = np.asarray(array)
    return found if found is not None else {"dtype": str(array.dtype), "values": array.tolist()}


def _outline_of_attribute(value):
    """Return strings as they are, configurations as objects, lists with their kind of strings."""
    if isinstance(value, bytes):
        return {"bytes": _text_outline(value.decode("utf-8"))}
    if isinstance(value, str):
        return {"text": _text_outline(value)}
    if isinstance(value, np.ndarray) and value.dtype.kind == "S":
        return {"list of bytes": [each.decode("utf-8") for each in value]}
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return {"list of texts": [each.decode("utf-8") if isinstance(each, bytes) else each for each in value]}
    return {"number": np.asarray(value).tolist()}


def _text_outline(text):
    return json.loads(text) if text.startswith("{") else text


def _write_group(group, outlined, arrays):
    for name, value in outlined.get("attributes", {}).items():
        ((kind, content),) = value.items()
        text = json.dumps(content) if isinstance(content, dict) else content
        if kind == "bytes":
            group.attrs[name] = text.encode("utf-8")
        elif kind == "list of bytes":
            group.attrs[name] = np.array([each.encode("utf-8") for each in text], dtype="S")
        elif kind == "list of texts":
            group.attrs.create(name, text, dtype=h5py.special_dtype(vlen=str))
        else:
            group.attrs[name] = text
    for name, member in outlined.get("members", {}).items():
        if isinstance(member, int):
            group[name] = arrays[member]
        elif "values" in member:
            group[name] = np.array(member["values"], dtype=member["dtype"])
        else:
            _write_group(group.create_group(name), member, arrays)


# The data of a producer


def save(path, data):
    """Write the data of a producer, compressed."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with lzma.open(path, "wt", preset=9, encoding="utf-8") as stream:
        json.dump(data, stream, separators=(",", ":"))


def load(path):
    """Return the data of a producer."""
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        return json.load(stream)
