"""The fastest form there is of what a message costs most time in: compiled, or else in Python.

The compiled functions hand over to the Python ones where deciding takes more than ASCII. They are
optional: without a compiler at installation time everything works, slower.
ROCKHOPPER_PURE_PYTHON=1 in the environment turns them off.
"""

import os
from collections.abc import Callable

from rockhopper.broker.store.log import checking, encoding, walking
from rockhopper.broker.store.log.encoding import Batch, Plain

encode_plain: Callable[..., Plain | None] = encoding.encode_plain
encode_batch: Callable[..., Batch | None] = encoding.encode_batch
message_ids: Callable[[str, bytes], str] = encoding.message_ids
put_entries: Callable[..., int] = encoding.put_entries
put_timed_entries: Callable[..., int] = encoding.put_timed_entries
count_sound: Callable[..., int] = checking.count_sound
gather_sound: Callable[..., tuple[int, bytes] | None] = checking.gather_sound
walk_plain: Callable[..., walking.Found] = walking.walk_plain
is_compiled = False

if os.environ.get("ROCKHOPPER_PURE_PYTHON") != "1":
    try:
        from rockhopper.broker.store.log import _encoding
    except ImportError:
        pass
    else:
        _encoding.set_fallbacks(encoding.encode_plain, encoding.encode_batch)
        encode_plain = _encoding.encode_plain
        encode_batch = _encoding.encode_batch
        message_ids = _encoding.message_ids
        put_entries = _encoding.put_entries
        put_timed_entries = _encoding.put_timed_entries
        count_sound = _encoding.count_sound
        gather_sound = _encoding.gather_sound
        walk_plain = _encoding.walk_plain
        is_compiled = True
