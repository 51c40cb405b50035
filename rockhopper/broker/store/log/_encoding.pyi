from collections.abc import Callable
from mmap import mmap

from rockhopper.broker.store.log.encoding import Batch, Plain, QueueConstants

def set_fallbacks(
    plain: Callable[..., Plain | None],
    batch: Callable[..., Batch | None],
    run: Callable[..., Batch | None],
    count: Callable[..., int],
    /,
) -> None: ...
def encode_plain(
    constants: QueueConstants,
    log_offset: int,
    queue_offset: int,
    store_time_ms: int,
    store_host: bytes,
    body: bytes,
    properties: str,
    suffix: bytes,
    flag: int,
    sys_flag: int,
    born_time_ms: int,
    born_host: bytes,
    reconsume_times: int,
    /,
) -> Plain | None: ...
def encode_batch(
    constants: QueueConstants,
    log_offset: int,
    queue_offset: int,
    store_time_ms: int,
    store_host: bytes,
    body: bytes,
    sys_flag: int,
    born_time_ms: int,
    born_host: bytes,
    /,
) -> Batch | None: ...
def encode_run(
    constants: QueueConstants,
    log_offset: int,
    queue_offset: int,
    store_time_ms: int,
    store_host: bytes,
    body: bytes,
    suffix: bytes,
    born_time_ms: int,
    /,
) -> Batch | None: ...
def count_run(body: bytes, suffix: bytes, /) -> int: ...
def message_ids(host: str, units: bytes, /) -> str: ...
def count_sound(
    topic_field: bytes,
    queue_id: int,
    queue_offset: int,
    units: bytes,
    count: int,
    records: bytes,
    unchecked_from: int,
    /,
) -> int: ...
def gather_sound(
    topic_field: bytes,
    queue_id: int,
    queue_offset: int,
    units: bytes,
    count_max: int,
    size_max: int,
    log: tuple[mmap | bytes, int, int],
    unchecked_from: int,
    /,
) -> tuple[int, bytes] | None: ...
def select_sound(
    owner: tuple[bytes, int, int],
    units: bytes,
    count_max: int,
    size_max: int,
    log: tuple[mmap | bytes, int, int],
    unchecked_from: int,
    test: tuple[tuple[bytes, ...], dict[bytes, bool], Callable[[bytes], bool | None]],
    /,
) -> tuple[int, int, bytes] | None: ...
def half_place(record: bytes, log_offset: int, /) -> tuple[str, int] | None: ...
def encode_end(
    record: bytes,
    half_offset: int,
    final_constants: QueueConstants,
    final_offset: int,
    op_constants: QueueConstants,
    op_offset: int,
    log_offset: int,
    store_time_ms: int,
    store_host: bytes,
    now_ms: int,
    /,
) -> tuple[bytes, int, bytes, bytes] | None: ...
def put_entries(
    mapping: mmap,
    slot_count: int,
    entries_at: int,
    number: int,
    seconds: int,
    packed_keys: bytes | bytearray,
    /,
) -> int: ...
def put_timed_entries(
    mapping: mmap,
    slot_count: int,
    entries_at: int,
    number: int,
    begin_ms: int,
    packed_keys: memoryview,
    /,
) -> int: ...
def crc32(data: bytes, /) -> int: ...
