"""Sender: what is stored of a send, and what its producer is told, without any protocol."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rockhopper.broker.kernel.send.send_request import Send, is_half
from rockhopper.broker.kernel.send.sender import Diversion
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.store.files.errors import RecordTooLargeError, StoreError
from rockhopper.broker.users.errors import IllegalMessage, NoPermission, Refusal, TopicNotFound
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.message_ids import decode_offset_message_id
from rockhopper.protocol.properties import encode_properties
from rockhopper.protocol.store.message_codec import decode_messages, encode_batch
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_NEED_UNWRAP,
    SYS_FLAG_TRANSACTION_COMMIT,
    SYS_FLAG_TRANSACTION_ROLLBACK,
)
from tests.support.features import needs
from tests.support.hot_broker import fail_writes
from tests.support.peers import Clock
from tests.support.served_broker import BORN_HOST, STORE_HOST, ServedBroker

TOPIC = "orders"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture(autouse=True)
def topic(broker: ServedBroker) -> None:
    broker.create_topic(TOPIC)


def send(body: bytes = b"one", properties: dict[str, str] | None = None, **fields: object) -> Send:
    plain = Send(
        group="senders",
        topic=TOPIC,
        default_topic="TBW102",
        default_queue_nums=4,
        queue_id=2,
        sys_flag=0,
        born_time_ms=1234,
        flag=7,
        properties=encode_properties(properties or {}),
        reconsume_times=0,
        reconsume_times_max=None,
        is_batch=False,
        unit_mode=False,
        body=body,
        born_host=BORN_HOST,
        version=479,
    )
    return plain._replace(**fields)  # type: ignore[arg-type]


def stored(broker: ServedBroker, topic: str = TOPIC, queue_id: int = 2) -> list[StoredMessage]:
    return decode_messages(broker.store.reading.get_message(topic, queue_id, 0, 32).body)


def log_offset_of(message_id: str) -> int:
    host, port, log_offset = decode_offset_message_id(message_id)
    assert (host, port) == ("127.0.0.1", int.from_bytes(STORE_HOST[-4:], "big"))
    return log_offset


async def test_a_message_is_stored_as_it_was_sent(broker: ServedBroker) -> None:
    broker.put(TOPIC, queue_id=2)
    placed, _ = broker.send(
        send(properties={"UNIQ_KEY": "A1", "TAGS": "t", "a": "b"}, sys_flag=SYS_FLAG_COMPRESSED)
    )
    message = stored(broker)[1]
    assert (placed.queue_id, placed.queue_offset, placed.transaction_id) == (2, 1, "A1")
    assert log_offset_of(placed.message_ids) == message.commit_log_offset > 0
    assert (message.flag, message.sys_flag, message.born_time_ms) == (7, SYS_FLAG_COMPRESSED, 1234)
    assert (message.born_host, message.born_port) == ("10.1.2.3", 4567)
    assert message.properties == {
        "UNIQ_KEY": "A1",
        "TAGS": "t",
        "a": "b",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    assert (placed.diversion, placed.recall_handle, placed.batch_unique_id) == (None, None, None)


async def test_the_brokers_own_properties_are_not_the_clients(broker: ServedBroker) -> None:
    broker.send(send(properties={"MSG_REGION": "forged", "REAL_TOPIC": "other"}))
    (message,) = stored(broker)
    assert message.properties["MSG_REGION"] == "DefaultRegion"
    assert "REAL_TOPIC" not in message.properties


async def test_a_message_without_a_key_gets_one(broker: ServedBroker) -> None:
    first, _ = broker.send(send())
    second, _ = broker.send(send())
    assert [len(placed.transaction_id or "") for placed in (first, second)] == [32, 32]
    assert first.transaction_id != second.transaction_id
    assert stored(broker)[1].properties["UNIQ_KEY"] == second.transaction_id


async def test_what_is_counted_are_messages_and_the_bytes_of_their_records(
    broker: ServedBroker,
) -> None:
    broker.send(send(b"x" * 100))
    batch = encode_batch([(0, b"y", b""), (0, b"z", b"")])
    broker.send(send(batch, is_batch=True))
    traffic = broker.stats.get_send_traffic(TOPIC)
    assert (traffic.messages, traffic.bytes) == (3, broker.store.log.written_offset)
    assert broker.stats.put_failed == 0


async def test_a_batch_gets_an_id_for_each_message_and_consecutive_offsets(
    broker: ServedBroker,
) -> None:
    broker.put(TOPIC, queue_id=2)
    batch = encode_batch([(0, b"y", b"TAGS\x01t\x02"), (3, b"z", b"")])
    placed, _ = broker.send(
        send(batch, is_batch=True, sys_flag=SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP)
    )
    _, first, second = stored(broker)
    ids = placed.message_ids.split(",")
    assert [log_offset_of(one) for one in ids] == [
        first.commit_log_offset,
        second.commit_log_offset,
    ]
    assert (placed.queue_offset, placed.transaction_id) == (1, None)
    assert [first.sys_flag, second.sys_flag] == [0, 0]
    assert [first.flag, second.flag] == [0, 3]


async def test_a_delay_level_moves_a_message_and_beats_a_time(
    broker: ServedBroker, clock: Clock
) -> None:
    placed, _ = broker.send(
        send(properties={"DELAY": "99", "TIMER_DELIVER_MS": str(clock.now_ms + 60_000)})
    )
    (message,) = stored(broker, SCHEDULE_TOPIC, 17)
    assert message.properties["REAL_TOPIC"] == TOPIC
    assert message.properties["REAL_QID"] == "2"
    assert message.properties["DELAY"] == "18"
    assert "TIMER_DELIVER_MS" not in message.properties
    assert (placed.queue_id, placed.queue_offset) == (2, 0)
    assert broker.stats.get_send_traffic(TOPIC).messages == 1


@pytest.mark.parametrize("level", ["0", "-3"])
async def test_levels_below_one_delay_nothing(broker: ServedBroker, level: str) -> None:
    broker.send(send(properties={"DELAY": level}))
    assert len(stored(broker)) == 1


async def test_a_time_gets_a_handle_to_withdraw_the_message_by(
    broker: ServedBroker, clock: Clock
) -> None:
    placed, _ = broker.send(send(properties={"TIMER_DELIVER_MS": str(clock.now_ms + 60_000)}))
    assert placed.recall_handle
    assert stored(broker) == []


HALF = {"TRAN_MSG": "true", "UNIQ_KEY": "A"}


class Aside(Diversion):
    """A message that waits in queue 1 of another topic."""

    def __init__(self) -> None:
        super().__init__("aside", 1)
        self.places: list[tuple[int, int]] = []

    def stored(self) -> None:
        """Note the place."""
        self.places.append((self.queue_offset, self.log_offset))


async def test_the_first_feature_that_diverts_a_half_message_decides_where_it_is_stored(
    broker: ServedBroker,
) -> None:
    aside, asked = Aside(), list[tuple[str, int]]()

    def look(request: Send, properties: dict[str, str], topic: str, queue_id: int) -> None:
        asked.append((topic, queue_id))
        properties["seen"] = "yes"

    def divert(request: Send, properties: dict[str, str], topic: str, queue_id: int) -> Aside:
        return aside

    def miss(request: Send, properties: dict[str, str], topic: str, queue_id: int) -> None:
        raise AssertionError("called after the diversion")

    broker.kernel.sender.diversions[:] = [look, divert, miss]
    broker.create_topic("aside")
    placed, _ = broker.send(send(properties=HALF | {"DELAY": "1"}))
    (message,) = stored(broker, "aside", 1)
    assert asked == [(TOPIC, 2)]
    assert aside.places == [(0, message.commit_log_offset)]
    assert placed.diversion is aside
    assert (placed.queue_id, placed.transaction_id) == (2, "A")
    assert (message.sys_flag, message.properties["seen"]) == (0, "yes")
    assert broker.stats.get_send_traffic("aside").messages == 1
    assert broker.stats.get_send_traffic(TOPIC).messages == 0


async def test_features_prepare_the_messages_that_have_their_property(
    broker: ServedBroker,
) -> None:
    def mark(properties: dict[str, str], topic: TopicConfig, queue_id: int) -> int:
        properties["marked"] = topic.name
        return queue_id + 1

    broker.kernel.sender.preparations[:] = [("odd", mark), ("marked", mark), ("missing", mark)]
    for properties in ({"UNIQ_KEY": "A"}, {"UNIQ_KEY": "B", "odd": "1"}):
        broker.send(send(properties=properties, queue_id=0))
    (plain,), (prepared,) = stored(broker, TOPIC, 0), stored(broker, TOPIC, 2)
    assert "marked" not in plain.properties
    assert prepared.properties["marked"] == TOPIC


async def test_a_message_that_a_feature_refuses_is_not_stored(broker: ServedBroker) -> None:
    def refuse(request: Send, properties: dict[str, str], topic: str, queue_id: int) -> None:
        raise NoPermission("not now")

    broker.kernel.sender.diversions[:] = [refuse]
    with pytest.raises(NoPermission, match="not now"):
        broker.send(send(properties=HALF))
    assert stored(broker) == []
    broker.send(send())
    assert len(stored(broker)) == 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (send(topic="nowhere", default_topic="none"), TopicNotFound),
        (send(topic="RMQ_SYS_TRANS_HALF_TOPIC"), NoPermission),
        (send(sys_flag=SYS_FLAG_TRANSACTION_ROLLBACK), IllegalMessage),
        (send(properties={"DELAY": "soon"}), Refusal),
        (send(bytes((4 << 20) + 1)), RecordTooLargeError),
        (send(b"", is_batch=True, sys_flag=SYS_FLAG_TRANSACTION_COMMIT), IllegalMessage),
        (send(b"", is_batch=True, properties={"DELAY": "1"}), IllegalMessage),
        (send(b"", is_batch=True, topic="%RETRY%g"), Refusal),
        (send(encode_batch([(0, b"", b"DELAY\x011\x02")]), is_batch=True), IllegalMessage),
        pytest.param(
            send(group="a\x01b", properties={"TRAN_MSG": "true"}, sys_flag=4),
            IllegalMessage,
            marks=needs("transactions"),
        ),
    ],
)
async def test_what_is_refused_is_counted_and_leaves_nothing(
    broker: ServedBroker, wrong: Send, error: type[Refusal | StoreError]
) -> None:
    with pytest.raises(error):
        broker.send(wrong)
    assert broker.stats.put_failed == 1
    assert broker.store.log.written_offset == 0


async def test_the_largest_body_is_taken(broker: ServedBroker) -> None:
    broker.config.store.live.message_size_max_bytes = 100
    broker.send(send(bytes(100)))
    with pytest.raises(RecordTooLargeError, match="101 bytes"):
        broker.send(send(bytes(101)))


@pytest.mark.parametrize(
    ("sys_flag", "properties", "reconsume_times", "expected"),
    [
        (4, {"TRAN_MSG": "true"}, 0, True),
        (0, {"TRAN_MSG": "TRUE"}, 0, True),
        (4, {}, 0, True),
        (8, {}, 0, False),
        (12, {}, 0, False),
        (0, {"TRAN_MSG": "false"}, 0, False),
        (4, {"TRAN_MSG": "true", "DELAY": "3"}, 1, False),
        (4, {"TRAN_MSG": "true"}, 1, True),
        (4, {"TRAN_MSG": "true", "DELAY": "3"}, 0, True),
    ],
)
def test_a_half_message_is_known_by_flag_or_property(
    sys_flag: int, properties: dict[str, str], reconsume_times: int, expected: bool
) -> None:
    request = send(sys_flag=sys_flag, reconsume_times=reconsume_times)
    assert is_half(request, properties) is expected


async def test_a_half_message_is_refused_where_no_feature_takes_it(broker: ServedBroker) -> None:
    broker.kernel.sender.diversions.clear()
    with pytest.raises(NoPermission, match="serves no transactions"):
        broker.send(send(properties={"TRAN_MSG": "true"}))
    assert stored(broker) == []


async def test_messages_that_are_staged_together_are_written_together(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, asides = broker.kernel.sender, [Aside(), Aside()]
    broker.create_topic("aside")
    left = iter(asides)
    sender.diversions[:] = [lambda *_: next(left)]
    first, second = (sender.stage(send(properties=HALF)) for _ in asides)

    with monkeypatch.context() as broken:
        fail_writes(broken)
        end, error = sender.commit([first, second])
    assert isinstance(error, StoreError)
    assert end <= first.log_offset < second.log_offset
    assert broker.stats.put_failed == 2
    assert [aside.places for aside in asides] == [[], []]
    left = iter(asides)
    again = [sender.stage(send(properties=HALF)) for _ in asides]
    assert sender.commit(again) == (broker.store.log.written_offset, None)
    assert [len(aside.places) for aside in asides] == [1, 1]
    assert [placed.queue_offset for placed in again] == [0, 1]


PROPERTY_NAMES = st.sampled_from(
    ["TAGS", "KEYS", "a", "__BORNHOST", "DELAY", "WAIT", "TRAN_MSG", "CLUSTER", "é"]
)
PROPERTY_VALUES = st.sampled_from(["", "1", "true", "false", "k1 k2", "ID7", "-", "é"])


@given(
    properties=st.dictionaries(PROPERTY_NAMES, PROPERTY_VALUES),
    unique_key=st.sampled_from(["ID6", "a-b"]),
    topic=st.sampled_from([TOPIC, "attributed", "compacted"]),
    sys_flag=st.sampled_from([0, SYS_FLAG_COMPRESSED, SYS_FLAG_TRANSACTION_ROLLBACK]),
)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_properties_that_were_never_text_are_stored_as_those_that_were(
    broker: ServedBroker, properties: dict[str, str], unique_key: str, topic: str, sys_flag: int
) -> None:
    for name, attributes in (
        ("attributed", {"message.type": "NORMAL"}),
        ("compacted", {"cleanup.policy": "COMPACTION"}),
    ):
        broker.tables.topics.put(
            TopicConfig(name, read_queue_nums=4, write_queue_nums=4, attributes=attributes)
        )
    properties = {"UNIQ_KEY": unique_key} | {
        name: value for name, value in properties.items() if value
    }
    plain = send(topic=topic, sys_flag=sys_flag, properties=properties)
    found: list[object] = []
    for each in (plain, plain._replace(properties="", apart=properties)):
        try:
            placed, _ = broker.send(each)
        except (Refusal, StoreError) as error:
            found.append(str(error))
            continue
        (message,) = decode_messages(broker.store.log.record_at(placed.log_offset))
        record = (message.topic, message.queue_id, message.body, list(message.properties.items()))
        head = message.flag, message.sys_flag, message.born_time_ms, message.born_host
        found.append((*record, *head, message.reconsume_times))
        assert placed.transaction_id == unique_key
    assert found[0] == found[1]
