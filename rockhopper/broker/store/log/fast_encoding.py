"""The fastest form there is of what a message costs most time in: compiled, or else in Python.

The compiled functions hand over to the Python ones where deciding takes more than ASCII.
"""

import zlib
from collections.abc import Callable

from rockhopper.broker.store.log import checking, encoding, selecting, walking
from rockhopper.broker.store.log.encoding import Batch, Plain
from rockhopper.protocol.compiled import compiled

_encoding = compiled("rockhopper.broker.store.log._encoding")
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
"""Topic and queue that the half message is for whose record is to stand at a commit log offset;
None if it takes a closer look, or is not sound.

Without a compiler there is none of this, and transactions end the general way alone."""
encode_end: Callable[..., tuple[bytes, int, bytes, bytes] | None] | None = getattr(
    _encoding, "encode_end", None
)
"""The records of a final message and of the op message behind it, the size of the first, the units
of both, and packed index keys."""
walk_plain: Callable[..., walking.Found] = (_encoding or walking).walk_plain
whole_end: Callable[..., int] = (_encoding or walking).whole_end
crc32: Callable[[bytes], int] = zlib.crc32 if _encoding is None else _encoding.crc32
"""That of zlib, which takes many times as long where the processor helps."""
