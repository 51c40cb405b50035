"""TOPIC_IDS (70007): the same for as long as a topic lives, and another for the next one."""

from pathlib import Path

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.kernel.tables.topic_ids import TopicIds
from rockhopper.client import Admin, Message, Producer
from rockhopper.protocol.bodies.topic_ids import decode_topic_ids, encode_topic_ids
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.daemon import Daemon
from tests.support.features import NAMES
from tests.support.raw_peer import RawPeer, request


async def ids(peer: RawPeer, *topics: str) -> list[str | None]:
    peer.send(request(RequestCode.TOPIC_IDS, {}, encode_topic_ids(list(topics))))
    return decode_topic_ids((await peer.answer()).body)


async def bulk(peer: RawPeer, topic: str, topic_id: str) -> int:
    fields = {"topic": topic, "queueId": 0, "offset": 0, "topicId": topic_id}
    peer.send(request(RequestCode.BULK_PULL, fields))
    return (await peer.answer()).code


async def test_a_topic_that_is_made_anew_has_another_id(broker: Broker) -> None:
    async with Admin(broker.nameserver) as admin, RawPeer(broker.address) as peer:
        for topic in ("T", "U"):
            await admin.create_topic(topic, queues=1)
        first, other, unknown = await ids(peer, "T", "U", "nowhere")
        assert first
        assert other not in (None, first)
        assert unknown is None
        await admin.create_topic("T", queues=4)
        await admin.purge_topic("T")
        assert await ids(peer, "T", "U") == [first, other]
        if "bulk_pull" in NAMES:
            assert await bulk(peer, "T", first) == ResponseCode.PULL_NOT_FOUND
        await admin.delete_topic("T")
        assert await ids(peer, "T") == [None]
        await admin.create_topic("T", queues=1)
        (second,) = await ids(peer, "T")
        assert second not in (None, first)
        if "bulk_pull" in NAMES:
            assert await bulk(peer, "T", first) == ResponseCode.TOPIC_NOT_EXIST
        peer.send(request(RequestCode.TOPIC_IDS, {}, b"\xc1"))
        assert (await peer.answer()).code != 0


@pytest.mark.costly
async def test_ids_outlive_kill_9_and_damage(tmp_path: Path) -> None:
    async with Daemon(tmp_path) as daemon, RawPeer(daemon.address) as peer:
        async with Producer(daemon.nameserver) as producer:
            await producer.send(Message("T", b"a"))
        before = await ids(peer, "T")
        await daemon.kill()
    (file,) = tmp_path.rglob("topic-ids.json")
    file.write_bytes(file.read_bytes()[:-20])
    async with Daemon(tmp_path) as daemon, RawPeer(daemon.address) as peer:
        assert await ids(peer, "T") == before


def test_a_deletion_that_a_crash_cut_off(tmp_path: Path) -> None:
    table = TopicIds(tmp_path / "topic-ids.json")
    given = {topic: table.get(topic, 100) for topic in ("gone", "deleted", "later", "kept")}
    table.agree_with({"deleted", "later", "kept"}, [("deleted", 101), ("later", 100)])
    assert {topic: table.find(topic) for topic in given} == {
        "gone": None,
        "deleted": None,
        "later": given["later"],
        "kept": given["kept"],
    }
