"""The bytes between replicas: what comes is a frame, or is waited for, or is refused."""

import hmac
from collections.abc import Iterator
from contextlib import suppress
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.broker.replication.election import wire
from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.messages import Ack, Beat, Hello, Refused, Welcome
from rockhopper.broker.replication.election.replica_set import Replica

NONCE = bytes(range(16))
HELLO = Hello(Replica(2, "s2"), "i2", 5, True, 70, 90, (Epoch(1, 0), Epoch(5, 60)))
WELCOME = Welcome(6, (Epoch(1, 0), Epoch(6, 80)), 0, 200, 150, 80)

offsets = st.integers(0, 2**63 - 1)
beats = st.builds(Beat, offsets, offsets, offsets)
messages = st.one_of(
    beats,
    st.builds(Ack, offsets, offsets, st.booleans()),
    st.builds(Refused, offsets, st.text(max_size=50)),
    st.builds(
        Welcome,
        offsets,
        st.lists(st.builds(Epoch, offsets, offsets), max_size=5).map(tuple),
        *[offsets] * 4,
        st.booleans(),
    ),
)


def greeting(**changed: object) -> bytes:
    facts = {"cluster": "c", "broker": "b", "log_file_size_bytes": 1 << 30, "nonce": NONCE}
    return wire.greeting(HELLO, **{**facts, **changed})  # type: ignore[arg-type]


def frames(data: bytes) -> list[wire.Frame]:
    return list(wire.WireDecoder().feed(data))


def fragments(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    while data:
        size = sizes.pop() if sizes else len(data)
        yield data[:size]
        data = data[size:]


def test_a_hello_has_the_layout_of_the_module() -> None:
    data = greeting()
    assert data[:8] == b"RHHA\0\1\0\0"
    assert int.from_bytes(data[8:12], "big") == len(data) - 12 - 16
    assert data[-16:] == NONCE
    assert frames(data) == [wire.Greeting(HELLO, "c", "b", 1 << 30, data)]


def test_the_fields_of_json_keep_their_names_on_the_wire() -> None:
    assert greeting()[12:-16] == (
        b'{"replica":[2,"s2"],"incarnation":"i2","promise":5,"is_clean":true,"confirmed_offset":70,'
        b'"log_end":90,"epochs":[[1,0],[5,60]],"cluster":"c","broker":"b",'
        b'"log_file_size_bytes":1073741824}'
    )
    assert wire.encode(Refused(8, "late"))[8:] == b'{"promise":8,"why":"late"}'
    assert wire.encode(WELCOME)[8:] == (
        b'{"epoch":6,"epochs":[[1,0],[6,80]],"log_start":0,"log_end":200,"whole_offset":150,'
        b'"common_end":80,"seed":false}'
    )


def test_data_has_the_layout_of_the_module() -> None:
    data = wire.data_head(Beat(6, 150), 80, 3, crc32(b"log")) + b"log"
    assert data == (
        b"\4\0\0\0\0\0\0\3"
        + (6).to_bytes(8, "big")
        + (80).to_bytes(8, "big")
        + (150).to_bytes(8, "big")
        + bytes.fromhex("8f3f68c5")
        + b"log"
    )
    assert frames(data) == [wire.LogData(Beat(6, 150), 80, b"log")]


def test_a_beat_carries_the_time_where_data_has_its_offset() -> None:
    data = wire.encode(Beat(6, 150, 1_800_000_000_000))
    head = b"\4\0\0\0\0\0\0\0" + (6).to_bytes(8, "big")
    assert data == head + (1_800_000_000_000).to_bytes(8, "big") + (150).to_bytes(8, "big") + bytes(
        4
    )
    assert frames(head + bytes(8) + (150).to_bytes(8, "big") + bytes(4)) == [Beat(6, 150)]


def test_an_acknowledgement_has_the_layout_of_the_module() -> None:
    assert wire.encode(Ack(6, 90, True)).hex() == "05010000" + f"{6:016x}" + f"{90:016x}"


@given(st.lists(messages, max_size=8), st.lists(st.integers(1, 40)))
def test_frames_come_back_whatever_pieces_they_come_in(
    sent: list[Beat | Ack | Refused | Welcome], sizes: list[int]
) -> None:
    decoder = wire.WireDecoder()
    data = b"".join(map(wire.encode, sent))
    found = [frame for piece in fragments(data, sizes) for frame in decoder.feed(piece)]
    assert found == sent


@given(st.binary(max_size=300))
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    with suppress(wire.WireError):
        frames(data)


@given(st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_a_damaged_greeting_is_refused_or_another(position: int, damage: bytes) -> None:
    data = bytearray(greeting() + wire.encode(WELCOME))
    data[position : position + len(damage)] = damage
    with suppress(wire.WireError):
        frames(bytes(data))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"RHHB", "is not the greeting of a replica"),
        (b"RHHA\0\2\0\0\0\0\0\0", "version 2"),
        (b"RHHA\0\1\0\0\xff\0\0\0", "a frame of 4,278,190,080 bytes"),
        (b"\3\0\0\0\0\x04\0\1", "a frame of 262,145 bytes"),
        (b"\4\0\0\0\0\x40\0\1" + bytes(28), "a frame of 4,194,305 bytes"),
        (b"\x09", "a frame of type 9"),
        (b"\6\0\0\0\0\0\0\2[]", "not an object"),
        (b"\6\0\0\0\0\0\0\2{}", "promise is"),
        (b"\6\0\0\0\0\0\0\1{", "cannot be read"),
        (b"\6\0\0\0\0\1\x86\xa0" + b"[" * 100_000, "cannot be read"),
        (wire.data_head(Beat(1, 1), 7, 3, crc32(b"log")) + b"lag", "at 7 with a wrong CRC"),
    ],
)
def test_what_no_replica_sends_is_refused_with_what_it_was(data: bytes, why: str) -> None:
    with pytest.raises(wire.WireError, match=why):
        frames(data)


def test_both_sides_prove_the_secret_for_this_connection_only() -> None:
    signed = greeting()
    (challenge,) = frames(wire.challenge(b"secret", signed, NONCE))
    (proof,) = frames(wire.proof(b"secret", signed, NONCE))
    assert isinstance(challenge, wire.Challenge)
    assert isinstance(proof, wire.Proof)
    assert challenge.proof == hmac.digest(b"secret", b"master" + signed + NONCE, "sha256")
    assert proof.proof == wire.prove(b"secret", b"follower", signed, NONCE)
    others = [
        wire.prove(b"another", b"follower", signed, NONCE),
        wire.prove(b"secret", b"master", signed, NONCE),
        wire.prove(b"secret", b"follower", greeting(nonce=bytes(16)), NONCE),
        wire.prove(b"secret", b"follower", signed, bytes(16)),
    ]
    assert proof.proof not in others
