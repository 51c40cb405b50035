"""Hot encoding functions: C when compiled, else pure Python.

The compiled functions call the Python ones for input that they cannot handle in ASCII.
"""

import zlib
from collections.abc import Callable

from rockhopper.broker.store.log import checking, encoding, selecting
from rockhopper.broker.store.log.encoding import Batch, Plain
from rockhopper.protocol.compiled import import_compiled

_encoding = import_compiled("rockhopper.broker.store.log._encoding")
if _encoding is not None:
    _encoding.set_fallbacks(
        encoding.encode_plain, encoding.encode_batch, encoding.encode_run, encoding.count_run
    )

encode_plain: Callable[..., Plain | None] = (_encoding or encoding).encode_plain
encode_batch: Callable[..., Batch | None] = (_encoding or encoding).encode_batch
encode_run: Callable[..., Batch | None] = (_encoding or encoding).encode_run
count_run: Callable[..., int] = (_encoding or encoding).count_run
message_ids: Callable[[str, bytes], str] = (_encoding or encoding).message_ids
put_entries: Callable[..., int] = (_encoding or encoding).put_entries
put_timed_entries: Callable[..., int] = (_encoding or encoding).put_timed_entries
count_sound: Callable[..., int] = (_encoding or checking).count_sound
gather_sound: Callable[..., tuple[int, bytes] | None] = (_encoding or checking).gather_sound
select_sound: Callable[..., tuple[int, int, bytes] | None] = (_encoding or selecting).select_sound
half_place: Callable[[bytes, int], tuple[str, int] | None] | None = getattr(
    _encoding, "half_place", None
)
"""Return topic and queue of the half message whose record is to be at a commit log offset; None if
it needs a closer check, or is not sound.

Without a compiler this is None, and all transactions end by the general path.
"""
encode_end: Callable[..., tuple[bytes, int, bytes, bytes] | None] | None = getattr(
    _encoding, "encode_end", None
)
"""Return the records of a final message and of the op message after it, the size of the first, the
units of both, and packed index keys."""
crc32: Callable[[bytes], int] = zlib.crc32 if _encoding is None else _encoding.crc32
"""zlib's crc32, or a compiled one that is many times as fast if the processor supports it."""
