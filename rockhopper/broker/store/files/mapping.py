"""Mapping a whole file: without a descriptor, where there was a compiler.

Python's mmap keeps a duplicate of the descriptor for as long as the mapping lives, and a process
may have 20,000 descriptors where it may have 65,000 mappings: a store with more queues in use than
that would close and open a file for every message. So an anonymous mapping of the size is made,
and the file put in its place.
"""

import mmap

from rockhopper.protocol.compiled import compiled

_mapping = compiled("rockhopper.broker.store.files._mapping")
HOLDS_DESCRIPTOR = _mapping is None


def map_whole(descriptor: int, size_bytes: int, *, writable: bool) -> mmap.mmap:
    """The mapping of a file of at least *size_bytes*; *descriptor* may be closed then.

    Raises:
        OSError: there is no room for it among the mappings or descriptors of this process.
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
