"""HotPass and ReplyBatch: one pass over the frames of a connection, its order, and what it owes."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.hot import hot_pass
from rockhopper.broker.hot.plain_sends import take_sends
from rockhopper.broker.server.loop.fair_scheduler import PASS_S
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import StoreBusyError, StoreFailedError
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.queues.queue_tail import Run, StagedMessages
from rockhopper.broker.users.access import Action, Resource, ResourceKind
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder
from rockhopper.protocol.store.message_codec import decode_messages, encode_batch
from tests.support.direct import pull_fields
from tests.support.hot_broker import HotBroker, fail_writes
from tests.support.open_stores import flush
from tests.support.rules import Rules

SYNC = {"flushDiskType": "SYNC_FLUSH"}
JSON, BINARY, MSGPACK = 0, 1, 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HotBroker]:
    made = HotBroker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def sync_broker(tmp_path: Path) -> Iterator[HotBroker]:
    made = HotBroker(tmp_path, SYNC)
    yield made
    made.close()


SEND = {"a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}


def frame(
    code: int, opaque: int, ext: dict[str, str], body: bytes = b"", flag: int = 0, kind: int = JSON
) -> Frame:
    command = Command(code, opaque, flag, ext=ext, serialize_type=kind)
    ((serialize_type, header, _),) = FrameDecoder().feed(encode_command(command))
    return serialize_type, header, body


def send(
    opaque: int,
    body: bytes = b"hello",
    *,
    properties: str = "UNIQ_KEY\x01AB\x02",
    flag: int = 0,
    kind: int = JSON,
    **ext: str,
) -> Frame:
    return frame(310, opaque, SEND | {"i": properties} | ext, body, flag, kind)


def batch(opaque: int, *bodies: bytes, properties: str = "") -> Frame:
    body = encode_batch([(0, body, b"") for body in bodies])
    return frame(320, opaque, SEND | {"i": properties}, body)


def pull(opaque: int, offset: int = 0, **ext: str) -> Frame:
    return frame(11, opaque, pull_fields("orders", offset) | ext)


def codes(broker: HotBroker) -> list[tuple[int, int]]:
    """(opaque, code) of the answers so far, in their order, which are then forgotten."""
    answers = [(command.opaque, command.code) for command, _ in broker.answers()]
    broker.peer.written.clear()
    return answers


def stored(broker: HotBroker) -> list[bytes]:
    result = broker.served.store.reading.get_message("orders", 0, 0, 32)
    return [message.body for message in decode_messages(result.body)]


@pytest.mark.skipif(take_sends is None, reason="no compiler")
@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_a_pass_is_one_write_to_the_log_and_one_to_the_peer(
    broker: HotBroker, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    broker.serve([send(0)])
    codes(broker)
    writes: list[int] = []
    real = MappedFile.pwrite

    def pwrite(file: MappedFile, position: int, data: bytes) -> None:
        writes.append(len(data))
        real(file, position, data)

    monkeypatch.setattr(MappedFile, "pwrite", pwrite)
    broker.serve([send(n, kind=kind) for n in range(1, 6)])
    assert len(writes) == 1
    assert len(broker.peer.written) == 1
    assert codes(broker) == [(n, 0) for n in range(1, 6)]


@pytest.mark.skipif(take_sends is None, reason="no compiler")
@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_sends_with_long_names_alone_find_the_compiled_way(
    broker: HotBroker, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    def long_send(opaque: int) -> Frame:
        ext = {"producerGroup": "g", "topic": "orders", "defaultTopic": "TBW102"}
        ext |= {"defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "flag": "0"}
        ext |= {"bornTimestamp": "1", "properties": "UNIQ_KEY\x01AB\x02"}
        return frame(10, opaque, ext, b"hello", kind=kind)

    broker.serve([long_send(0)])
    taken: list[int] = []
    append = broker.served.store.append_encoded

    def appended(records: bytes, runs: list[Run], packed_keys: bytes) -> StagedMessages:
        taken.append(sum(run.count for run in runs))
        return append(records, runs, packed_keys)

    monkeypatch.setattr(broker.served.store, "append_encoded", appended)
    broker.serve([long_send(1), long_send(2)])
    assert taken == [2]
    assert codes(broker) == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize("kind", [JSON, BINARY, MSGPACK])
def test_an_answer_comes_in_the_serialisation_of_its_request(broker: HotBroker, kind: int) -> None:
    broker.serve([send(1), send(2, kind=kind)])
    (plain, _), (other, _) = broker.answers()
    assert other.serialize_type == kind
    assert plain.ext is not None
    assert other.ext is not None
    assert set(other.ext) == set(plain.ext)
    assert other.ext["queueOffset"] == "1"


def test_a_pull_behind_a_send_in_the_same_pass_sees_its_message(broker: HotBroker) -> None:
    broker.serve([send(1, b"a"), pull(2), send(3, b"b"), batch(4, b"c", b"d"), pull(5)])
    answers = broker.answers()
    assert [command.opaque for command, _ in answers] == [1, 2, 3, 4, 5]
    assert [message.body for message in decode_messages(answers[1][1])] == [b"a"]
    assert [message.body for message in decode_messages(answers[4][1])] == [b"a", b"b", b"c", b"d"]


def test_what_goes_the_general_way_keeps_its_place_in_the_queue(broker: HotBroker) -> None:
    special = "UNIQ_KEY\x01AB\x02POP_CK\x01x\x02"
    broker.serve([send(1, b"a"), send(2, b"b", properties=special), send(3, b"c", kind=BINARY)])
    assert codes(broker) == [(1, 0), (2, 0), (3, 0)]
    assert stored(broker) == [b"a", b"b", b"c"]


def test_oneway_sends_are_stored_and_not_answered(broker: HotBroker) -> None:
    broker.serve([send(1, b"a", flag=2), send(2, b"b", flag=2, kind=MSGPACK)])
    assert broker.peer.written == []
    assert stored(broker) == [b"a", b"b"]


@pytest.mark.parametrize("code", [3100, 3200])
def test_a_code_that_only_begins_like_a_send_is_none(broker: HotBroker, code: int) -> None:
    _, header, body = send(1)
    broker.serve([(0, header.replace(b'"code":310', b'"code":%d' % code), body)])
    assert codes(broker) == [(1, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)]
    assert broker.log_bytes() == b""


@pytest.mark.skipif(take_sends is None, reason="no compiler")
def test_a_peer_that_does_not_read_is_served_later(
    broker: HotBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot_pass, "PASS_BYTES_MAX", 300)
    frames = [send(n) for n in range(10)]
    assert broker.hot.serve_frames(broker.peer.connection, frames) == 10
    broker.peer.writing_paused = True
    frames = [pull(n) for n in range(10)]
    assert broker.hot.serve_frames(broker.peer.connection, frames) < 10


def test_a_malformed_header_ends_the_pass_behind_the_answers_before_it(broker: HotBroker) -> None:
    broken = (0, b'{"code":', b"")
    assert (
        broker.hot.serve_frames(broker.peer.connection, [send(1), broken, send(2, b"never")]) == 3
    )
    assert codes(broker) == [(1, 0)]
    assert broker.peer.failure is not None
    assert stored(broker) == [b"hello"]


def test_a_topic_that_changes_is_looked_at_anew(broker: HotBroker) -> None:
    broker.serve([send(1, e="2")])
    broker.served.create_topic("orders", 1)
    broker.serve([send(2, e="2"), send(3)])
    broker.served.create_topic("orders", 1, perm=4)
    broker.serve([send(4)])
    broker.served.tables.topics.delete("orders")
    broker.serve([send(5, c="none")])
    assert codes(broker) == [
        (1, 0),
        (2, ResponseCode.INVALID_PARAMETER),
        (3, 0),
        (4, ResponseCode.NO_PERMISSION),
        (5, ResponseCode.TOPIC_NOT_EXIST),
    ]


def test_a_name_that_was_put_into_the_table_past_all_checks_is_refused(broker: HotBroker) -> None:
    broker.served.create_topic("../../escaped", 1)
    broker.serve([send(1, b="../../escaped")])
    assert codes(broker) == [(1, ResponseCode.INVALID_PARAMETER)]
    assert not (broker.root / "escaped").exists()


PUB_ORDERS = (Action.PUB, Resource(ResourceKind.TOPIC, "orders"))
SUB_ORDERS = (Action.SUB, Resource(ResourceKind.TOPIC, "orders"))
NO_PERMISSION = int(ResponseCode.NO_PERMISSION)


def test_each_send_is_asked_for_and_what_is_not_allowed_is_refused(tmp_path: Path) -> None:
    rules = Rules(PUB_ORDERS)
    broker = HotBroker(tmp_path, access=rules)
    broker.serve([send(1), send(2), batch(3, b"a", b"b"), send(4, kind=BINARY)])
    assert codes(broker) == [(1, 0), (2, 0), (3, 0), (4, 0)]
    assert [asked[1:] for asked in rules.asked] == [PUB_ORDERS] * 4
    rules.allowed.clear()
    broker.serve([send(5), batch(6, b"c"), send(7, kind=MSGPACK)])
    assert codes(broker) == [(opaque, NO_PERMISSION) for opaque in (5, 6, 7)]
    assert len(stored(broker)) == 5
    broker.close()


def test_what_one_peer_is_allowed_is_not_allowed_to_another(tmp_path: Path) -> None:
    rules = Rules(PUB_ORDERS)
    broker = HotBroker(tmp_path, access=rules)
    broker.serve([send(1)])
    rules.allowed.clear()
    broker.peer.addresses = broker.peer.addresses._replace(peer_host="10.0.0.8")
    broker.serve([send(2)])
    assert codes(broker) == [(1, 0), (2, NO_PERMISSION)]
    broker.close()


def test_a_pull_is_asked_for_its_topic_and_its_group(tmp_path: Path) -> None:
    rules = Rules(SUB_ORDERS)
    broker = HotBroker(tmp_path, access=rules)
    group = pull_fields("orders", 0)["consumerGroup"]
    broker.serve([pull(1)])
    rules.allowed.add((Action.SUB, Resource(ResourceKind.GROUP, group)))
    broker.serve([pull(2)])
    (refused, served) = codes(broker)
    assert refused == (1, NO_PERMISSION)
    assert served != (2, NO_PERMISSION)
    broker.close()


def test_a_retry_topic_is_checked_as_its_group_and_not_as_a_topic(tmp_path: Path) -> None:
    group = pull_fields("orders", 0)["consumerGroup"]
    rules = Rules(
        (Action.SUB, Resource(ResourceKind.GROUP, group)),
        (Action.SUB, Resource(ResourceKind.TOPIC, "%RETRY%other")),
    )
    broker = HotBroker(tmp_path, access=rules)
    broker.served.create_topic("%RETRY%other")
    broker.serve([pull(1, topic="%RETRY%other")])
    assert codes(broker) == [(1, NO_PERMISSION)]
    broker.close()


@pytest.mark.parametrize("kind", [JSON, BINARY, MSGPACK])
def test_rules_that_compiled_code_does_not_know_are_asked_for_each_request(
    tmp_path: Path, kind: int
) -> None:
    rules = Rules(PUB_ORDERS)
    broker = HotBroker(tmp_path, access=rules)
    for opaque in (1, 2):
        broker.serve([send(opaque, kind=kind, AccessKey="k", Signature="s")])
    assert codes(broker) == [(1, 0), (2, 0)]
    assert [asked[1:] for asked in rules.asked] == [PUB_ORDERS, PUB_ORDERS]
    broker.close()


@pytest.mark.parametrize("kind", [JSON, BINARY, MSGPACK])
def test_a_pass_that_cannot_be_written_is_refused_as_a_whole(
    broker: HotBroker, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    with monkeypatch.context() as broken:
        fail_writes(broken, 0)
        broker.serve([send(1, kind=kind), send(2)])
    assert codes(broker) == [(1, ResponseCode.SYSTEM_ERROR), (2, ResponseCode.SYSTEM_ERROR)]
    broker.serve([send(3, b"after")])
    ((answer, _),) = broker.answers()
    assert answer.ext is not None
    assert answer.ext["queueOffset"] == "0"
    assert stored(broker) == [b"after"]


@pytest.mark.skipif(take_sends is None, reason="no compiler")
def test_only_those_are_refused_whose_messages_are_not_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = HotBroker(tmp_path, {"mappedFileSizeCommitLog": "4096"})
    with monkeypatch.context() as broken:
        # The file that is full is written, and closed; the next one fails.
        fail_writes(broken, 2)
        broker.serve([send(n, bytes(1000)) for n in range(4)])
    refused = ResponseCode.SYSTEM_ERROR
    assert sorted(codes(broker)) == [(0, 0), (1, 0), (2, 0), (3, refused)]
    assert len(stored(broker)) == 3
    broker.close()


@pytest.mark.skipif(take_sends is None, reason="no compiler")
def test_a_write_that_fails_in_the_middle_of_a_pass_is_never_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = HotBroker(tmp_path, {"mappedFileSizeCommitLog": "4096"})
    broker.serve([send(9, b"first")])
    assert codes(broker) == [(9, 0)]
    real, calls = MappedFile.pwrite, []

    def fail_once(file: MappedFile, position: int, data: bytes) -> None:
        calls.append(position)
        if len(calls) == 1:
            raise OSError(errno.EIO, "no")
        real(file, position, data)

    monkeypatch.setattr(MappedFile, "pwrite", fail_once)
    broker.serve([send(n, b"%d" % n + bytes(1000)) for n in range(4)])
    refused = ResponseCode.SYSTEM_ERROR
    assert codes(broker) == [(0, refused), (1, refused), (2, refused), (3, 0)]
    assert [body[:1] for body in stored(broker)] == [b"f", b"3"]
    broker.close()


def test_a_pass_that_opens_queues_ends_when_its_time_is_up(
    broker: HotBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    create = MappedFile.create.__func__  # type: ignore[attr-defined]

    def slow_create(kind: type[MappedFile], path: Path, *others: Any, **more: Any) -> MappedFile:
        broker.now_s += PASS_S
        made.append(path)
        file: MappedFile = create(kind, path, *others, **more)
        return file

    broker.serve([send(9)])
    monkeypatch.setattr(MappedFile, "create", classmethod(slow_create))
    assert (
        broker.hot.serve_frames(broker.peer.connection, [send(n, e=str(n)) for n in (1, 2)] * 2)
        == 1
    )
    assert len(made) == 1


def test_sends_are_refused_while_queues_cannot_grow(
    broker: HotBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.serve([send(0)])

    def no_room(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as full:
        full.setattr(disk, "preallocate", no_room)
        broker.serve([send(1, e="1")])
    broker.serve([send(2), batch(3, b"x"), send(4, kind=BINARY)])
    unavailable = ResponseCode.SERVICE_NOT_AVAILABLE
    expected = [(0, 0), (1, 0), (2, unavailable), (3, unavailable), (4, unavailable)]
    assert codes(broker) == expected
    broker.served.store.catch_up()
    broker.serve([send(5)])
    assert codes(broker) == [(5, 0)]


async def test_answers_wait_for_the_disk_unless_the_producer_does_not(
    sync_broker: HotBroker,
) -> None:
    not_waiting = "UNIQ_KEY\x01AB\x02WAIT\x01false\x02"
    general = "UNIQ_KEY\x01AB\x02POP_CK\x01x\x02"
    sync_broker.serve(
        [
            send(1),
            send(2, properties=not_waiting),
            batch(3, b"x"),
            batch(4, b"y", properties="WAIT\x01false\x02"),
            batch(5, b"z", properties="XWAIT\x01false\x02"),
            send(6, properties=general),
            send(7, properties=general + "WAIT\x01false\x02"),
            send(8, properties=general + "XWAIT\x01false\x02"),
        ]
    )
    assert codes(sync_broker) == [(2, 0), (4, 0), (7, 0)]
    assert stored(sync_broker) == []
    flush(sync_broker.served.store)
    assert codes(sync_broker) == [(1, 0), (3, 0), (5, 0), (6, 0), (8, 0)]
    assert len(stored(sync_broker)) == 8


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreBusyError("too slow"), ResponseCode.FLUSH_DISK_TIMEOUT),
        (StoreFailedError("bad disk"), ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
)
async def test_what_the_disk_did_not_confirm_is_answered_with_all_fields(
    sync_broker: HotBroker, error: Any, code: int
) -> None:
    general = "UNIQ_KEY\x01AB\x02POP_CK\x01x\x02"
    sync_broker.serve([send(1), send(2, kind=BINARY), batch(3, b"x"), send(4, properties=general)])
    sync_broker.served.store.safe_point.fail(error)
    answers = [command for command, _ in sync_broker.answers()]
    assert [(answer.opaque, answer.code) for answer in answers] == [(n, code) for n in (1, 2, 3, 4)]
    assert {answer.remark for answer in answers} == {str(error)}
    for number, answer in enumerate(answers):
        assert answer.ext is not None
        assert answer.ext["queueOffset"] == str(number)
        assert answer.ext["msgId"]


async def test_too_much_that_waits_for_the_disk_makes_the_broker_busy(tmp_path: Path) -> None:
    broker = HotBroker(
        tmp_path,
        SYNC | {"flushWaitingBytesMax": "1048576", "mappedFileSizeCommitLog": str(4 << 20)},
    )
    broker.serve([send(1, bytes(1 << 20))])
    broker.serve([send(2), batch(3, b"x")])
    assert codes(broker) == [(2, ResponseCode.SYSTEM_BUSY), (3, ResponseCode.SYSTEM_BUSY)]
    flush(broker.served.store)
    assert codes(broker) == [(1, 0)]
    broker.serve([send(4, properties="UNIQ_KEY\x01AB\x02WAIT\x01false\x02")])
    assert codes(broker) == [(4, 0)]
    broker.close()


def test_sends_are_refused_until_the_broker_accepts_them(broker: HotBroker) -> None:
    live = broker.served.config.live
    now_ms = broker.served.store.staging.read_clock()
    for opaque, opens_ms in enumerate((now_ms + 1, now_ms)):
        live.accept_send_from_ms = opens_ms
        broker.serve([send(opaque)])
    assert codes(broker) == [(0, ResponseCode.SYSTEM_ERROR), (1, 0)]
