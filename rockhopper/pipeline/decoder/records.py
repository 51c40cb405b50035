"""Parse many records at once: heads as one structured array, and the positions of their parts.

protocol.store.record_head documents the layout. Each IPv6 host moves the fields after it by 12
bytes, and V2 has one more byte before the topic. Both are per-row shifts here, so one batch can
hold records of all kinds in their order.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rockhopper.pipeline.decoder.walk import Offsets
from rockhopper.protocol.store.message_codec.record import V1_TOPIC_SIZE_BYTES_MAX
from rockhopper.protocol.store.record_head import (
    BORN_HOST_AT,
    HEAD_SIZE_BYTES,
    HOST_FLAGS_MASK,
    MAGIC_V1,
    STORE_HOST_AT,
)
from rockhopper.protocol.sys_flags import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]

_FRONT = [
    ("size", ">i4"),
    ("magic", ">u4"),
    ("bodyCrc", ">i4"),
    ("queueId", ">i4"),
    ("flag", ">i4"),
    ("queueOffset", ">i8"),
    ("physOffset", ">i8"),
    ("sysFlag", ">i4"),
    ("bornTimestamp", ">i8"),
    ("bornHost", "V8"),
]
_MIDDLE = [("storeTimestamp", ">i8"), ("storeHost", "V8")]
_BACK = [("reconsumeTimes", ">i4"), ("preparedTransactionOffset", ">i8"), ("bodySize", ">i4")]
_HEAD = np.dtype(_FRONT + _MIDDLE + _BACK)
_PARTS = (np.dtype(_FRONT), np.dtype(_MIDDLE), np.dtype(_BACK))


@dataclass(slots=True)
class Records:
    """The positions of the parts of records, counted from the start of ``data``.

    If a record is not ``sound``, its positions have no meaning, but they lie inside the record.
    """

    data: Bytes
    offsets: Offsets
    ends: Offsets
    parts: tuple[Array, ...]
    """The fixed fields as structures."""
    heads: dict[str, Array]
    """The numeric fields by column name, and bodySize; big-endian, as stored."""
    hosts_shift: Offsets | None
    """The number of bytes by which IPv6 hosts move the body; None if no record has any."""
    body_start: Offsets
    body_end: Offsets
    topic_start: Offsets
    topic_end: Offsets
    properties_start: Offsets
    sound: npt.NDArray[np.bool_]
    """Whether the sizes in the record add up to the size of the record."""

    def __len__(self) -> int:
        return len(self.offsets)


def read_records(data: Bytes, offsets: Offsets) -> Records:
    """Split the records at *offsets*; each must be complete in *data* by its size and magic."""
    parts: tuple[Array, ...] = (_read(data, offsets, _HEAD),)
    heads = _columns(parts)
    sys_flags = heads["sysFlag"]
    v6 = sys_flags & HOST_FLAGS_MASK
    ends = offsets + heads["size"]
    shift: Offsets | None = None
    if v6.any():
        parts, shift = _read_shifted(data, offsets, v6, ends)
        heads = _columns(parts)
    body_size = heads["bodySize"].astype(np.int64)
    is_v1 = heads["magic"] == MAGIC_V1
    all_v1 = bool(is_v1.all())

    body_start = offsets + HEAD_SIZE_BYTES if shift is None else offsets + HEAD_SIZE_BYTES + shift
    room = ends - body_start - (3 if all_v1 else np.where(is_v1, 3, 4))
    sound = (body_size >= 0) & (body_size <= room)
    if not sound.all():
        body_start = np.minimum(body_start, ends - 4)
        body_size = np.where(sound, body_size, 0)
    body_end = body_start + body_size

    topic_size = data[body_end].astype(np.int64)
    if all_v1:
        topic_start = body_end + 1
        sound &= topic_size <= V1_TOPIC_SIZE_BYTES_MAX
    else:
        wide_size = (topic_size << 8) | data[body_end + 1]
        sound &= np.where(is_v1, topic_size <= V1_TOPIC_SIZE_BYTES_MAX, wide_size <= 0x7FFF)
        topic_size = np.where(is_v1, topic_size, wide_size)
        topic_start = body_end + np.where(is_v1, 1, 2)
    topic_end = topic_start + topic_size
    fits = topic_end + 2 <= ends
    if not fits.all():
        sound &= fits
        topic_end = np.minimum(topic_end, ends - 2)
        topic_start = np.minimum(topic_start, topic_end)
    properties_start = topic_end + 2
    properties_size = (data[topic_end].astype(np.int64) << 8) | data[topic_end + 1]
    sound &= (properties_start + properties_size == ends) & (properties_size <= 0x7FFF)
    return Records(
        data,
        offsets,
        ends,
        parts,
        heads,
        shift,
        body_start,
        body_end,
        topic_start,
        topic_end,
        properties_start,
        sound,
    )


def pick(records: Records, chosen: Array | slice) -> Records:
    """Select records; *chosen* is a mask, a slice or positions."""
    shift = records.hosts_shift
    parts = tuple(_whole(part)[chosen].view(part.dtype) for part in records.parts)
    return Records(
        records.data,
        records.offsets[chosen],
        records.ends[chosen],
        parts,
        _columns(parts),
        None if shift is None else shift[chosen],
        records.body_start[chosen],
        records.body_end[chosen],
        records.topic_start[chosen],
        records.topic_end[chosen],
        records.properties_start[chosen],
        records.sound[chosen],
    )


def _columns(parts: tuple[Array, ...]) -> dict[str, Array]:
    return {name: part[name] for part in parts for name in part.dtype.names or ()}


def _whole(structures: Array) -> Array:
    """View structures as raw bytes: numpy copies structures field by field, which is slow."""
    return structures.view(np.dtype((np.void, structures.itemsize)))


def _read(data: Bytes, offsets: Offsets, layout: np.dtype[Any]) -> Array:
    """Read the structures at *offsets*, at any alignment in *data*."""
    count = len(data) - layout.itemsize + 1
    every: Array = np.ndarray(shape=(count,), dtype=layout, buffer=data, strides=(1,))
    found: Array = _whole(every)[offsets].view(layout)
    return found


def _read_shifted(
    data: Bytes, offsets: Offsets, v6: Array, ends: Offsets
) -> tuple[tuple[Array, ...], Offsets]:
    born = np.where(v6 & SYS_FLAG_BORN_HOST_V6, 12, 0)
    shift = born + np.where(v6 & SYS_FLAG_STORE_HOST_V6, 12, 0)
    front, middle, back = _PARTS
    # A later check finds a record too short for its hosts; here it must not point outside the data.
    middle_at = np.minimum(offsets + front.itemsize + born, ends - middle.itemsize)
    back_at = np.minimum(offsets + HEAD_SIZE_BYTES - back.itemsize + shift, ends - back.itemsize)
    parts = (
        _read(data, offsets, front),
        _read(data, middle_at, middle),
        _read(data, back_at, back),
    )
    return parts, shift


def born_host_start(records: Records) -> Offsets:
    """Return the positions of the born hosts."""
    return records.offsets + BORN_HOST_AT


def store_host_start(records: Records) -> Offsets:
    """Return the positions of the store hosts."""
    start = records.offsets + STORE_HOST_AT
    if records.hosts_shift is None:
        return start
    is_v6 = (records.heads["sysFlag"] & SYS_FLAG_BORN_HOST_V6) != 0
    return start + np.where(is_v6, 12, 0)
