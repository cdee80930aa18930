"""Archives of golden files, one for each producer: similar files compress well together.

Needs no TensorFlow.
"""

import contextlib
import io
import os
import shutil
import tarfile
import tempfile

from scalekeeper_test_support.repository import repository_path

FILES = repository_path("compat_tests", "golden", "files")


def path_of(producer, root=FILES):
    """Return the path of a producer's archive, which names its provenance."""
    return os.path.join(root, producer.cls, producer.flavour + ".tar.xz")


def pack(folder, path):
    """Write the files of a folder into a new archive; never replace an existing one."""
    names = sorted(_files_in(folder), key=_with_its_kind)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:xz", format=tarfile.PAX_FORMAT, preset=9) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            source = os.path.join(folder, *name.split("/"))
            member.size = os.path.getsize(source)
            with open(source, "rb") as content:
                archive.addfile(member, content)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as target:
        target.write(stream.getvalue())


def _files_in(folder):
    for parent, _, names in os.walk(folder):
        for name in names:
            yield os.path.relpath(os.path.join(parent, name), folder).replace(os.sep, "/")


def _with_its_kind(name):
    """Sort equal files of all cases next to each other, which compresses best."""
    case, _, rest = name.partition("/")
    return rest, case


def unpack(path, folder):
    """Extract an archive into a folder; refuse members that are not plain files inside it."""
    root = os.path.realpath(folder)
    with tarfile.open(path, mode="r:xz") as archive:
        for member in archive:
            parts = member.name.split("/")
            leads_elsewhere = {"", ".", ".."} & set(parts) or "\\" in member.name  # "": a slash begins it
            if leads_elsewhere or not member.isfile():
                raise ValueError(f"{path} holds {member.name!r}, which is not a plain file inside it")
            target = os.path.join(root, *parts)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with archive.extractfile(member) as source, open(target, "xb") as content:
                shutil.copyfileobj(source, content)


@contextlib.contextmanager
def unpacked(producer, root=FILES):
    """Yield a temporary folder with the files of a producer."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        unpack(path_of(producer, root), folder)
        yield folder
