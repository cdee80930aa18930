"""A file that Keras is to open must hold its own data: Keras follows each link in HDF5, also one to another file."""

from typing import Any, Set

import h5py

from ..registry.errors import UnreadableFileError
from ._untrusted_hdf5 import H5


def require_self_contained(source: H5) -> None:
    """UnreadableFileError for a link, or an array that is kept elsewhere, anywhere in an HDF5 file.

    Keras writes neither. With them, a file that somebody else wrote would put bytes of any file on this disk, or the
    weights of another model, into the model that is loaded.
    """
    with source.opened() as file:
        seen: Set[Any] = set()
        groups = [file]
        while groups:
            group = groups.pop()
            address = h5py.h5o.get_info(group.id).addr
            if address in seen:  # a group may hold itself
                continue
            seen.add(address)
            for name in group:
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    raise UnreadableFileError(f"{source.name}: {name} in {group.name} is a link: Keras writes none")
                member = group[name]
                if isinstance(member, h5py.Group):
                    groups.append(member)
                elif isinstance(member, h5py.Dataset):
                    source.value(member)
