"""Keep the memory that one pass frees for the next one, if the C module was compiled.

A pass allocates blocks of some hundred kilobytes and frees them again. The C library would return
them to the system at once. Then each page, when it is allocated again, costs a fault and is filled
with zeros: a sixth of the time of a batch.
"""

from typing import Any

from rockhopper.protocol.compiled import import_compiled

IN_HEAP_BYTES = 8 << 20
"""A block of this size or more is returned when it is freed: the largest bodies are not kept."""
AT_END_BYTES = 32 << 20
"""Up to this much free memory at the end of the heap is kept."""

_heap = import_compiled("rockhopper.broker.server.loop._heap")


def keep_freed_memory(heap: Any = _heap) -> bool:
    """Configure this process to keep it; return whether its C library supports that."""
    return heap is not None and heap.keep_freed(IN_HEAP_BYTES, AT_END_BYTES)
