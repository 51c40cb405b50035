"""Memory that one pass frees stays for the next one, where there was a compiler.

A pass takes blocks of some hundred kilobytes and frees them again. The C library would give them
back to the system at once, and each page of theirs, when it is taken anew, costs a fault and is
filled with zeros: a sixth of the time of a batch.
"""

from typing import Any

from rockhopper.protocol.compiled import compiled

IN_HEAP_BYTES = 8 << 20
"""A block of so much, or more, is given back when it is freed: the largest bodies do not stay."""
AT_END_BYTES = 32 << 20
"""So much may be free at the end of the heap before it is given back."""

_heap = compiled("rockhopper.broker.server.loop._heap")


def keep_freed_memory(heap: Any = _heap) -> bool:
    """Have this process keep it; return whether its C library can be told so."""
    return heap is not None and heap.keep_freed(IN_HEAP_BYTES, AT_END_BYTES)
