"""Check that the sysFlag of a record agrees with the rest of the record.

No checksum covers the sysFlag, so the check looks for contradictions: unknown bits, a compression
that the body does not have, a committed transaction without other traces, or a batch that is not
one. The bits of IPv6 hosts make a record longer, so the scan of the log detects wrong ones.
Prepared or rolled back messages have queue offset 0 and no unit, so the comparison with the queues
detects wrong bits.
"""

import zlib
from collections.abc import Iterator

import numpy as np

from rockhopper.pipeline.decoder import Records
from rockhopper.protocol.properties import (
    PROPERTY_INNER_NUM,
    PROPERTY_PRODUCER_GROUP,
    decode_properties,
)
from rockhopper.protocol.sys_flags import (
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_COMPRESSION_MASK,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_MULTI_TAGS,
    SYS_FLAG_NEED_UNWRAP,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_COMMIT,
    SYS_FLAG_TRANSACTION_MASK,
    SYS_FLAG_TRANSACTION_NONE,
    compression_type,
    transaction_type,
)

_HOST_BITS = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_KNOWN_BITS = (
    (SYS_FLAG_COMPRESSED | SYS_FLAG_MULTI_TAGS | SYS_FLAG_TRANSACTION_MASK)
    | (_HOST_BITS | SYS_FLAG_NEED_UNWRAP | SYS_FLAG_INNER_BATCH)
    | SYS_FLAG_COMPRESSION_MASK
)
_FRAME_STARTS = {COMPRESSION_LZ4: b"\x04\x22\x4d\x18", COMPRESSION_ZSTD: b"\x28\xb5\x2f\xfd"}
_NAMES = {0: "zlib", COMPRESSION_ZLIB: "zlib", COMPRESSION_LZ4: "LZ4", COMPRESSION_ZSTD: "ZSTD"}
_PROBE_BYTES = 512
_INNER_NUM = f"{PROPERTY_INNER_NUM}\x01".encode()


def find_contradictions(records: Records, *, has_multi_tags: bool) -> Iterator[tuple[int, str]]:
    """Yield the rows with a wrong sysFlag, and the reason.

    Without *has_multi_tags*, no topic of the store has messages with several tags.
    """
    flags = records.heads["sysFlag"].astype(np.int32)
    prepared = records.heads["preparedTransactionOffset"]
    offsets = records.heads["queueOffset"]
    wanted = ((flags & ~_HOST_BITS) != 0) | (prepared != 0)
    start, end = int(records.offsets[0]), int(records.ends[-1])
    if _INNER_NUM in records.data[start:end].tobytes():
        wanted[:] = True
    for row in np.flatnonzero(wanted).tolist():
        flag = int(flags[row])
        body = records.data[records.body_start[row] : records.body_end[row]]
        properties = records.data[records.properties_start[row] : records.ends[row]].tobytes()
        reason = (
            _about_bits(flag, has_multi_tags)
            or _about_compression(flag, body[:_PROBE_BYTES].tobytes())
            or _about_transactions(flag, int(prepared[row]), int(offsets[row]), properties)
            or _about_batches(flag, properties)
        )
        if reason:
            yield row, f"the sysFlag {flag:#x} {reason}"


def _about_bits(flag: int, has_multi_tags: bool) -> str:
    if flag & ~_KNOWN_BITS:
        return "has bits that mean nothing"
    if flag & SYS_FLAG_MULTI_TAGS and not has_multi_tags:
        return "says that the message has several tags, and no topic has such"
    return ""


def _about_compression(flag: int, start: bytes) -> str:
    kind = compression_type(flag)
    if not flag & SYS_FLAG_COMPRESSED:
        return "names a compression, and says that there is none" if kind else ""
    if kind not in _NAMES:
        return f"names the compression {kind}, which does not exist"
    frame = _FRAME_STARTS.get(kind)
    is_right = _starts_as_zlib(start) if frame is None else start.startswith(frame)
    return "" if is_right else f"says that the body is compressed by {_NAMES[kind]}, and it is not"


def _starts_as_zlib(start: bytes) -> bool:
    try:
        zlib.decompressobj().decompress(start, _PROBE_BYTES)
    except zlib.error:
        return False
    return bool(start)


def _about_transactions(flag: int, prepared: int, queue_offset: int, properties: bytes) -> str:
    kind = transaction_type(flag)
    if kind == SYS_FLAG_TRANSACTION_NONE:
        if prepared:
            return "says nothing of a transaction, and the record names its half message"
    elif kind == SYS_FLAG_TRANSACTION_COMMIT:
        # Later copies, for example for a redelivery, only name the group.
        if not prepared and not _has(PROPERTY_PRODUCER_GROUP, properties):
            return "says that a transaction was committed, and the record names none"
    elif queue_offset:
        return "says that the message is in no queue, and the record has a queue offset"
    return ""


def _about_batches(flag: int, properties: bytes) -> str:
    is_batch = bool(flag & SYS_FLAG_INNER_BATCH)
    if is_batch != _has(PROPERTY_INNER_NUM, properties):
        if is_batch:
            return "says that messages are inside of this one, and the record does not count them"
        return "says nothing of messages inside of this one, and the record counts them"
    if flag & SYS_FLAG_NEED_UNWRAP and not is_batch:
        return "says that messages inside are to be unwrapped, and there are none"
    return ""


def _has(name: str, properties: bytes) -> bool:
    return f"{name}\x01".encode() in properties and name in decode_properties(properties)
