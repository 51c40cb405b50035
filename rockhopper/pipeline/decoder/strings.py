"""Copy pieces of a buffer into Arrow arrays in one pass; format hosts and message ids."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rockhopper.pipeline.decoder.records import Bytes, Records, store_host_start
from rockhopper.pipeline.decoder.walk import Offsets
from rockhopper.protocol.addresses import host_text
from rockhopper.protocol.sys_flags import SYS_FLAG_STORE_HOST_V6

# Two hex digits for each byte value.
_HEX = np.frombuffer(bytes(range(256)).hex().upper().encode(), dtype=np.uint16)


def gather(data: Bytes, starts: npt.NDArray[Any], ends: npt.NDArray[Any], kind: Any) -> Any:
    """Return the pieces [start, end) of *data* as an array of type *kind*, binary or string.

    The pieces ascend and do not overlap. The pieces and the gaps between them form an array over
    *data* itself. Arrow takes every other element of it, and that is the only copy.
    """
    count = len(starts)
    if not count:
        return pa.array([], kind)
    base = int(starts[0])
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = starts - base
    edges[1::2] = ends - base
    whole = pa.py_buffer(data[base : int(ends[-1])])
    spans = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(edges), whole])
    return spans.take(pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int32)))


def buffers_of(values: Any) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Return the offsets and bytes of a binary or string array; the array must not be a slice."""
    _, edges, data = values.buffers()
    offsets = np.frombuffer(edges, np.int32)[: len(values) + 1]
    size = int(offsets[-1])
    return offsets, np.frombuffer(data, np.uint8)[:size] if size else np.empty(0, np.uint8)


def fixed_size_text(digits: Bytes) -> Any:
    """Return each row of *digits*, which is ASCII, as a string."""
    count, width = digits.shape
    edges = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(edges), pa.py_buffer(digits)]
    )


def constant(value: str | None, count: int) -> Any:
    """Return an array with *value* in every row."""
    return pa.nulls(count, pa.string()) if value is None else pa.repeat(pa.scalar(value), count)


def host_texts(records: Records, starts: Offsets, v6_flag: int) -> Any:
    """Format the hosts at *starts* as ``address:port``; IPv6 addresses are in brackets."""
    if records.hosts_shift is not None:
        is_v6 = (records.heads["sysFlag"] & v6_flag) != 0
        if is_v6.any():
            sizes = np.where(is_v6, 20, 8)
            return _coded_texts(gather(records.data, starts, starts + sizes, pa.binary()))
    hosts = _words(records.data, starts)
    first = hosts[0]
    if (hosts == first).all():
        return constant(_host(first.tobytes()), len(starts))
    coded = pa.array(hosts).dictionary_encode()
    texts = [_host(host.tobytes()) for host in coded.dictionary.to_numpy()]
    return pa.array(texts, pa.string()).take(coded.indices)


def _coded_texts(hosts: Any) -> Any:
    coded = hosts.dictionary_encode()
    texts = [_host(host) for host in coded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(coded.indices)


def _host(host: bytes) -> str:
    address, port = host_text(host)
    return f"[{address}]:{port}" if len(host) == 20 else f"{address}:{port}"


def _words(data: Bytes, starts: Offsets) -> npt.NDArray[np.uint64]:
    every: npt.NDArray[np.uint64] = np.ndarray(
        shape=(len(data) - 7,), dtype=np.uint64, buffer=data, strides=(1,)
    )
    return every[starts]


def offset_message_ids(records: Records) -> Any:
    """Return the offset message ids, which encode the storage place; see protocol.message_ids."""
    starts = store_host_start(records)
    positions = records.heads["physOffset"].astype(">u8")
    if records.hosts_shift is not None:
        is_v6 = (records.heads["sysFlag"] & SYS_FLAG_STORE_HOST_V6) != 0
        if is_v6.any():
            return _mixed_ids(records, starts, np.where(is_v6, 20, 8), positions)
    words = np.empty((len(records), 2), np.uint64)
    words[:, 0] = _words(records.data, starts)
    words[:, 1] = positions.view(np.uint64)
    return fixed_size_text(_HEX[words.view(np.uint8)].view(np.uint8))


def _mixed_ids(records: Records, starts: Offsets, sizes: Offsets, positions: Any) -> Any:
    rows = zip(starts.tolist(), sizes.tolist(), positions.view("V8"), strict=True)
    ids = [
        (records.data[start : start + size].tobytes() + position.tobytes()).hex().upper()
        for start, size, position in rows
    ]
    return pa.array(ids, pa.string())
