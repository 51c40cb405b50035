"""Messages made ready for the wire."""

import asyncio
import random
import threading
import zlib

import pytest

from rockhopper.client.errors import MessageRejectedError
from rockhopper.client.sending import outgoing as outgoing_module
from rockhopper.client.sending.outgoing import BODY_SIZE_BYTES_MAX, OutgoingPolicy
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.message import Message
from rockhopper.protocol.message_ids import UniqueIds
from rockhopper.protocol.properties import decode_properties
from rockhopper.protocol.store.message_codec import decode_batch
from tests.support.hang import HANG_S

NOW_MS = 1_700_000_000_000
IDS = UniqueIds(b"\x0a\0\0\x07", lambda: NOW_MS)


@pytest.fixture
def policy() -> OutgoingPolicy:
    return OutgoingPolicy(IDS, now_ms=lambda: NOW_MS)


def test_a_small_body_goes_as_it_is(policy: OutgoingPolicy) -> None:
    outgoing = policy.prepare(Message("orders", bytes(4096)))
    assert (outgoing.body, outgoing.sys_flag) == (bytes(4096), 0)
    assert outgoing.born_time_ms == NOW_MS


def test_a_body_above_4096_bytes_is_a_zlib_stream_and_says_so(policy: OutgoingPolicy) -> None:
    outgoing = policy.prepare(Message("orders", bytes(4097)))
    assert zlib.decompress(outgoing.body) == bytes(4097)
    assert outgoing.sys_flag == 0x301


async def test_a_large_body_is_compressed_in_a_thread_and_messages_to_one_queue_keep_their_order(
    policy: OutgoingPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    may_go_on = threading.Event()

    def compress(data: bytes) -> bytes:
        threads.append(threading.get_ident())
        may_go_on.wait(HANG_S)
        return zlib.compress(data)

    monkeypatch.setattr(outgoing_module, "compress_zlib", compress)
    large = Message("orders", bytes(1 << 20))
    first = asyncio.create_task(policy.prepare_apart(large, 0))
    second = asyncio.create_task(policy.prepare_plain_apart("orders", b"2", 0))
    await policy.prepare_apart(Message("orders", b"3"), 1)
    assert not first.done()
    assert not second.done()
    may_go_on.set()
    outgoing = await first
    assert zlib.decompress(outgoing.body) == large.body
    assert (await second).message_id > outgoing.message_id
    assert threading.get_ident() not in threads


def test_a_large_body_whose_sample_does_not_become_smaller_is_not_compressed_whole(
    policy: OutgoingPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def compress(data: bytes) -> bytes:
        sizes.append(len(data))
        return zlib.compress(data)

    monkeypatch.setattr(outgoing_module, "compress_zlib", compress)
    noise = random.Random(1).randbytes(1 << 20)
    outgoing = policy.prepare(Message("orders", noise))
    assert (outgoing.body, outgoing.sys_flag) == (noise, 0)
    assert sizes == [16_384]


def test_a_body_that_does_not_become_smaller_is_not_compressed(policy: OutgoingPolicy) -> None:
    noise = random.Random(1).randbytes(5000)
    outgoing = policy.prepare(Message("orders", noise))
    assert (outgoing.body, outgoing.sys_flag) == (noise, 0)


def test_every_message_gets_its_own_id_and_carries_it(policy: OutgoingPolicy) -> None:
    outgoing = [policy.prepare(Message("orders")) for _ in range(1000)]
    ids = [each.message_id for each in outgoing]
    assert len(set(ids)) == 1000
    assert all(len(message_id) == 32 for message_id in ids)
    assert decode_properties(outgoing[7].properties)["UNIQ_KEY"] == ids[7]


def test_tags_keys_and_properties_travel_by_their_wire_names(policy: OutgoingPolicy) -> None:
    message = Message("orders", tags="new", keys=["o-1", "o-2"], properties={"region": "eu"})
    properties = decode_properties(policy.prepare(message).properties)
    assert properties["TAGS"] == "new"
    assert properties["KEYS"] == "o-1 o-2"
    assert properties["region"] == "eu"


def test_a_body_over_the_limit_is_rejected_with_both_sizes() -> None:
    policy = OutgoingPolicy(IDS, message_size_bytes_max=1000)
    with pytest.raises(
        MessageRejectedError, match=r"1,001 bytes; 1,000 are allowed.*maxMessageSize"
    ):
        policy.prepare(Message("orders", bytes(1001)))


@pytest.mark.parametrize("topic", ["", "a/b", "..", "a b", "x" * 128, "nul\0"])
def test_names_that_cannot_be_topics_are_rejected(policy: OutgoingPolicy, topic: str) -> None:
    with pytest.raises(MessageRejectedError, match="topic"):
        policy.prepare(Message(topic))


def test_what_no_frame_has_room_for_is_rejected_though_the_limit_is_higher() -> None:
    policy = OutgoingPolicy(IDS, message_size_bytes_max=1 << 25, compress_above_bytes=None)
    with pytest.raises(MessageRejectedError, match=r"16,777,216 bytes.*16,576,514.*several"):
        policy.prepare(Message("orders", bytes(1 << 24)))
    half = Message("orders", bytes(1 << 23))
    with pytest.raises(MessageRejectedError, match=r"the batch.*16,576,514"):
        policy.prepare_batch([half, half])


def test_the_largest_body_fits_a_frame_with_the_largest_properties() -> None:
    policy = OutgoingPolicy(IDS, message_size_bytes_max=1 << 25, compress_above_bytes=None)
    escaped = {f"{n:04}": '"' for n in range(4600)}
    body = bytes(BODY_SIZE_BYTES_MAX)
    outgoing = policy.prepare(Message("orders" * 20, body, properties=escaped))
    command = Command(310, ext={"b": outgoing.topic, "i": outgoing.properties}, body=outgoing.body)
    assert len(encode_command(command)) > len(body)


def test_a_large_body_that_becomes_small_is_sent() -> None:
    policy = OutgoingPolicy(IDS, message_size_bytes_max=1 << 25)
    assert len(policy.prepare(Message("orders", bytes(1 << 24))).body) < 1 << 20


def test_topics_that_brokers_write_themselves_are_rejected(policy: OutgoingPolicy) -> None:
    with pytest.raises(MessageRejectedError, match="only brokers may write"):
        policy.prepare(Message("SCHEDULE_TOPIC_XXXX"))


def test_properties_over_32767_bytes_are_rejected(policy: OutgoingPolicy) -> None:
    # Characters of two bytes each: the limit counts bytes.
    message = Message("orders", properties={"long": "é" * 16_400})
    with pytest.raises(MessageRejectedError, match=r"32,767 are allowed"):
        policy.prepare(message)


def test_separators_put_into_a_message_after_it_was_made_are_rejected(
    policy: OutgoingPolicy,
) -> None:
    message = Message("orders")
    message.properties["a"] = "b\x02TAGS\x01forged"
    with pytest.raises(MessageRejectedError, match="separate properties"):
        policy.prepare(message)


def test_a_batch_holds_each_message_with_its_own_id(policy: OutgoingPolicy) -> None:
    messages = [Message("orders", b"%d" % n, keys=[f"k{n}"], flag=n) for n in range(3)]
    whole, parts = policy.prepare_batch(messages)
    assert whole.is_batch
    assert len({whole.message_id, *(part.message_id for part in parts)}) == 4
    inner = decode_batch(whole.body)
    assert [(flag, body) for flag, body, _ in inner] == [(0, b"0"), (1, b"1"), (2, b"2")]
    ids = [decode_properties(properties)["UNIQ_KEY"] for _, _, properties in inner]
    assert ids == [part.message_id for part in parts]


def test_bodies_in_a_batch_are_not_compressed(policy: OutgoingPolicy) -> None:
    whole, _ = policy.prepare_batch([Message("orders", bytes(10_000))])
    assert whole.sys_flag == 0
    assert decode_batch(whole.body)[0][1] == bytes(10_000)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (Message("bills"), "one topic"),
        (Message("orders", delay_level=3), "delayed"),
        (Message("orders", sharding_key="k"), "sharding"),
        (Message("orders", wait_stored=False), "wait_stored"),
    ],
)
def test_messages_that_cannot_share_a_batch_are_rejected(
    policy: OutgoingPolicy, other: Message, reason: str
) -> None:
    with pytest.raises(MessageRejectedError, match=reason):
        policy.prepare_batch([Message("orders"), other])


def test_a_batch_over_the_limit_is_rejected() -> None:
    policy = OutgoingPolicy(IDS, message_size_bytes_max=1000)
    with pytest.raises(MessageRejectedError, match="the batch for 'orders' has"):
        policy.prepare_batch([Message("orders", bytes(400)) for _ in range(3)])


@pytest.mark.parametrize("in_batch", [False, True])
def test_a_tag_that_nobody_can_ask_for_is_rejected(policy: OutgoingPolicy, in_batch: bool) -> None:
    message = Message("orders", b"x", tags="new || paid")
    with pytest.raises(MessageRejectedError, match=r"'new \|\| paid' contains \|\|"):
        policy.prepare(message, in_batch=in_batch)
    assert policy.prepare(Message("orders", b"x", tags="a|b")).properties
