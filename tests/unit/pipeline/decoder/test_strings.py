"""Pieces of a buffer as Arrow arrays, and the text of hosts and ids."""

import numpy as np
import pyarrow as pa
import pytest

from rockhopper.pipeline.decoder.records import Records, read_records
from rockhopper.pipeline.decoder.strings import (
    buffers_of,
    constant,
    fixed_size_text,
    gather,
    host_texts,
    offset_message_ids,
)
from rockhopper.protocol.addresses import host_bytes, ip_bytes
from rockhopper.protocol.message_ids import offset_message_id
from rockhopper.protocol.sys_flags import SYS_FLAG_BORN_HOST_V6
from tests.support.records import encode_message

DATA = np.frombuffer(b"..one...two.three", np.uint8)
HOSTS = [("10.0.0.7", 4000), ("10.0.0.7", 4000), ("10.0.0.8", 10911), ("fe80::1", 80)]


def records(*hosts: tuple[str, int], offset: int = 1 << 33) -> Records:
    encoded = [
        encode_message(
            topic="T",
            born_host=host_bytes(*host),
            store_host=host_bytes(*host),
            commit_log_offset=offset + number,
        )
        for number, host in enumerate(hosts)
    ]
    starts = np.cumsum([0, *map(len, encoded[:-1])])
    return read_records(np.frombuffer(b"".join(encoded), np.uint8), starts)


def born_hosts(found: Records) -> list[str]:
    starts = found.offsets + 48
    texts: list[str] = host_texts(found, starts, SYS_FLAG_BORN_HOST_V6).to_pylist()
    return texts


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_pieces_come_in_their_order_and_gaps_are_left_out(kind: pa.DataType) -> None:
    found = gather(DATA, np.array([2, 8, 12]), np.array([5, 11, 17]), kind)
    assert found.type == kind
    assert found.cast(pa.string()).to_pylist() == ["one", "two", "three"]


def test_pieces_may_be_empty_and_there_may_be_none() -> None:
    assert gather(DATA, np.array([2, 2]), np.array([2, 5]), pa.string()).to_pylist() == ["", "one"]
    assert gather(DATA, np.array([], int), np.array([], int), pa.string()).to_pylist() == []


def test_the_buffers_of_an_array_are_its_edges_and_bytes() -> None:
    edges, data = buffers_of(pa.array(["ab", "", "c"]))
    assert edges.tolist() == [0, 2, 2, 3]
    assert data.tobytes() == b"abc"
    edges, data = buffers_of(pa.array(["", ""]))
    assert (edges.tolist(), data.tobytes()) == ([0, 0, 0], b"")


def test_rows_of_digits_become_strings() -> None:
    digits = np.frombuffer(b"0A1B2C3D", np.uint8).reshape(2, 4)
    assert fixed_size_text(digits).to_pylist() == ["0A1B", "2C3D"]


@pytest.mark.parametrize("value", ["a", None])
def test_a_constant_is_there_for_each_row(value: str | None) -> None:
    assert constant(value, 3).to_pylist() == [value] * 3


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_hosts_are_written_with_their_ports_and_ipv6_in_brackets(count: int) -> None:
    texts = ["10.0.0.7:4000", "10.0.0.7:4000", "10.0.0.8:10911", "[fe80::1]:80"]
    assert born_hosts(records(*HOSTS[:count])) == texts[:count]


@pytest.mark.parametrize("count", [1, 3, 4])
def test_offset_ids_are_those_of_the_protocol(count: int) -> None:
    found = offset_message_ids(records(*HOSTS[:count]))
    assert found.to_pylist() == [
        offset_message_id(ip_bytes(host), port, (1 << 33) + number)
        for number, (host, port) in enumerate(HOSTS[:count])
    ]
