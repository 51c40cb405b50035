"""Mapping of whole files, without holding a descriptor if the C module was compiled.

Python's mmap keeps a duplicate of the descriptor as long as the mapping lives. A process
that may have 65,000 mappings may have only 20,000 descriptors, so a store with more queues than
descriptors would open and close a file for every message. The C module avoids this: Python makes an
anonymous mapping of the size, and the module maps the file over it.
"""

import mmap

from rockhopper.protocol.compiled import compiled

_mapping = compiled("rockhopper.broker.store.files._mapping")
HOLDS_DESCRIPTOR = _mapping is None


def map_whole(descriptor: int, size_bytes: int, *, writable: bool) -> mmap.mmap:
    """Return the mapping of a file of at least *size_bytes*; *descriptor* may be closed afterwards.

    Raises:
        OSError: the process has reached its limit of mappings or descriptors.
    """
    if _mapping is None:
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return mmap.mmap(descriptor, size_bytes, access=access)
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    place = mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, protection)
    try:
        _mapping.map_over(place, descriptor)
    except OSError:
        place.close()
        raise
    return place
