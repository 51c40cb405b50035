"""Codes 14, 15, 29 to 32 and 43: offsets found, not found, and never created by asking."""

import pytest

from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.broker.settings.live_settings import InitialOffset
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker

OF_ORDERS = {"topic": "orders", "queueId": "0"}
BY_BILLING = OF_ORDERS | {"consumerGroup": "billing"}
QUEUE_CODES = [
    Code.SEARCH_OFFSET_BY_TIMESTAMP,
    Code.GET_MAX_OFFSET,
    Code.GET_MIN_OFFSET,
    Code.GET_EARLIEST_MSG_STORETIME,
]


@pytest.fixture(autouse=True)
def orders(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    broker.tables.groups.find_or_create("billing")


async def commit(broker: ServedBroker, offset: int, **changes: str) -> ResponseCode:
    ext = BY_BILLING | {"commitOffset": str(offset)} | changes
    return ResponseCode((await broker.ask(Code.UPDATE_CONSUMER_OFFSET, ext)).code)


async def test_committed_offset_is_what_the_group_is_told(broker: ServedBroker) -> None:
    assert await commit(broker, 5) == ResponseCode.SUCCESS
    answer = await broker.ask(Code.QUERY_CONSUMER_OFFSET, BY_BILLING)
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"offset": "5"})


async def test_commit_of_a_tool_may_go_back(broker: ServedBroker) -> None:
    await commit(broker, 5)
    await commit(broker, 3)
    assert broker.tables.offsets.get("orders", "billing", 0) == 3


def join(broker: ServedBroker, consume_type: str) -> Peer:
    peer = Peer()
    client = Client(peer.connection, "c1", language=0, version=479)
    broker.kernel.consumers.register("billing", client, ConsumeSettings(consume_type), {})
    return peer


async def test_commits_of_a_push_consumer_only_go_forward(broker: ServedBroker) -> None:
    for _ in range(9):
        broker.put("orders")
    peer = join(broker, "CONSUME_PASSIVELY")
    ext = BY_BILLING | {"commitOffset": "5"}
    await broker.ask(Code.UPDATE_CONSUMER_OFFSET, ext, peer=peer)
    answer = await broker.ask(Code.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": "3"}, peer=peer)
    assert answer.code == ResponseCode.SUCCESS
    assert "stays at 5" in (answer.remark or "")
    assert broker.tables.offsets.get("orders", "billing", 0) == 5


async def test_who_commits_ahead_of_its_heartbeat_after_a_restart_learns_of_the_others(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.kernel.consumers, "is_remembered", lambda group: group == "billing")
    member, early = join(broker, "CONSUME_PASSIVELY"), Peer()
    told = (int(Code.NOTIFY_CONSUMER_IDS_CHANGED), {"consumerGroup": "billing"})
    for _ in range(2):
        for peer in (member, early):
            ext = BY_BILLING | {"commitOffset": "0"}
            await broker.ask(Code.UPDATE_CONSUMER_OFFSET, ext, peer=peer)
    assert member.requests == [told]
    assert early.requests == [told]


async def test_commit_of_a_pull_consumer_may_go_back(broker: ServedBroker) -> None:
    for _ in range(9):
        broker.put("orders")
    peer = join(broker, "CONSUME_ACTIVELY")
    for offset in ("5", "3"):
        ext = BY_BILLING | {"commitOffset": offset}
        await broker.ask(Code.UPDATE_CONSUMER_OFFSET, ext, peer=peer)
    assert broker.tables.offsets.get("orders", "billing", 0) == 3


async def test_commit_beyond_the_end_is_corrected_by_whoever_knows_better(
    broker: ServedBroker,
) -> None:
    broker.put("orders")
    await commit(broker, 5)
    ext = BY_BILLING | {"commitOffset": "1"}
    peer = join(broker, "CONSUME_PASSIVELY")
    await broker.ask(Code.UPDATE_CONSUMER_OFFSET, ext, peer=peer)
    assert broker.tables.offsets.get("orders", "billing", 0) == 1


@pytest.mark.parametrize("offset", [-1, -9, -(2**62)])
async def test_negative_commit_is_taken_and_never_stored(broker: ServedBroker, offset: int) -> None:
    assert await commit(broker, offset) == ResponseCode.SUCCESS
    assert broker.tables.offsets.get("orders", "billing", 0) is None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"consumerGroup": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"consumerGroup": "../x"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "nothing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "a@b"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "4"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "abc"}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": "five"}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_commit_for_what_does_not_exist_is_refused(
    broker: ServedBroker, changes: dict[str, str], code: ResponseCode
) -> None:
    assert await commit(broker, 5, **changes) == code
    assert list(broker.tables.offsets.entries()) == []


@pytest.mark.parametrize("name", ["queueId", "commitOffset"])
async def test_commit_without_queue_or_offset_is_an_invalid_parameter(
    broker: ServedBroker, name: str
) -> None:
    ext = BY_BILLING | {"commitOffset": "5"}
    del ext[name]
    answer = await broker.ask(Code.UPDATE_CONSUMER_OFFSET, ext)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert name in (answer.remark or "")


async def test_commit_without_group_names_the_field(broker: ServedBroker) -> None:
    answer = await broker.ask(Code.UPDATE_CONSUMER_OFFSET, OF_ORDERS | {"commitOffset": "5"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "consumerGroup" in (answer.remark or "")


async def test_pending_reset_answers_queries_and_swallows_commits(broker: ServedBroker) -> None:
    await commit(broker, 5)
    broker.tables.offsets.reset("orders", "billing", 0, 2)
    answer = await broker.ask(Code.UPDATE_CONSUMER_OFFSET, BY_BILLING | {"commitOffset": "6"})
    assert (answer.code, answer.remark) == (
        ResponseCode.SUCCESS,
        "Offset has been previously reset",
    )
    asked = await broker.ask(Code.QUERY_CONSUMER_OFFSET, BY_BILLING)
    assert asked.ext == {"offset": "2"}


async def test_new_group_starts_at_the_first_message_of_a_young_queue(
    broker: ServedBroker,
) -> None:
    broker.put("orders")
    answer = await broker.ask(Code.QUERY_CONSUMER_OFFSET, BY_BILLING)
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"offset": "0"})


@pytest.mark.parametrize("changes", [{}, {"topic": "nothing"}, {"queueId": "9"}])
async def test_new_group_is_not_found_in_an_empty_or_unknown_queue(
    broker: ServedBroker, changes: dict[str, str]
) -> None:
    answer = await broker.ask(Code.QUERY_CONSUMER_OFFSET, BY_BILLING | changes)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


async def test_new_group_may_ask_not_to_start_at_zero(broker: ServedBroker) -> None:
    broker.put("orders")
    answer = await broker.ask(
        Code.QUERY_CONSUMER_OFFSET, BY_BILLING | {"setZeroIfNotFound": "false"}
    )
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark == "Not found, do not set to zero, maybe this group boot first"


async def test_new_group_starts_where_its_client_says_if_the_setting_says_so(
    broker: ServedBroker,
) -> None:
    broker.put("orders")
    broker.config.live.initial_offset = InitialOffset.STRICT
    answer = await broker.ask(Code.QUERY_CONSUMER_OFFSET, BY_BILLING)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize("setting", InitialOffset)
async def test_what_a_group_sent_back_is_never_skipped(
    broker: ServedBroker, setting: InitialOffset
) -> None:
    broker.create_topic("%RETRY%billing", queues=1)
    broker.put("%RETRY%billing")
    broker.config.live.initial_offset = setting
    ext = BY_BILLING | {"topic": "%RETRY%billing"}
    answer = await broker.ask(Code.QUERY_CONSUMER_OFFSET, ext)
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"offset": "0"})


async def test_ends_of_a_queue(broker: ServedBroker) -> None:
    for _ in range(3):
        broker.put("orders")
    assert (await broker.ask(Code.GET_MAX_OFFSET, OF_ORDERS)).ext == {"offset": "3"}
    assert (await broker.ask(Code.GET_MIN_OFFSET, OF_ORDERS)).ext == {"offset": "0"}


async def test_queue_that_was_never_written_is_empty(broker: ServedBroker) -> None:
    for code in (Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET):
        assert (await broker.ask(code, OF_ORDERS)).ext == {"offset": "0"}
    search = OF_ORDERS | {"timestamp": "5"}
    assert (await broker.ask(Code.SEARCH_OFFSET_BY_TIMESTAMP, search)).ext == {"offset": "0"}
    answer = await broker.ask(Code.GET_EARLIEST_MSG_STORETIME, OF_ORDERS)
    assert answer.ext == {"timestamp": "-1"}


async def test_oldest_message_tells_when_it_was_stored(broker: ServedBroker, clock: Clock) -> None:
    broker.put("orders")
    first_ms = clock.now_ms
    clock.advance(1000)
    broker.put("orders")
    answer = await broker.ask(Code.GET_EARLIEST_MSG_STORETIME, OF_ORDERS)
    assert answer.ext == {"timestamp": str(first_ms)}


@pytest.mark.parametrize(
    ("after_first_ms", "boundary", "offset"),
    [
        (-1, None, 0),
        (0, None, 0),
        (1, None, 1),
        (1000, None, 1),
        (2001, None, 3),
        (1500, "UPPER", 1),
        (1000, "upper", 1),
        (2001, "UPPER", 2),
        (-1, "UPPER", 0),
        (1500, "nonsense", 2),
    ],
)
async def test_offset_at_a_time(
    broker: ServedBroker, clock: Clock, after_first_ms: int, boundary: str | None, offset: int
) -> None:
    first_ms = clock.now_ms
    for _ in range(3):
        broker.put("orders")
        clock.advance(1000)
    ext = OF_ORDERS | {"timestamp": str(first_ms + after_first_ms)}
    if boundary is not None:
        ext["boundaryType"] = boundary
    answer = await broker.ask(Code.SEARCH_OFFSET_BY_TIMESTAMP, ext)
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"offset": str(offset)})


@pytest.mark.parametrize("code", QUEUE_CODES)
@pytest.mark.parametrize("topic", ["nothing", "../x", "", "t" * 10_000, "a\0b"])
async def test_unknown_topic_is_said_to_be_unknown_and_stays_so(
    broker: ServedBroker, code: Code, topic: str
) -> None:
    answer = await broker.ask(code, {"topic": topic, "queueId": "0", "timestamp": "5"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert topic not in broker.tables.topics
    assert len(answer.remark or "") < 1000


@pytest.mark.parametrize("code", QUEUE_CODES)
@pytest.mark.parametrize("queue_id", ["4", "-1", "2147483647"])
async def test_unknown_queue_is_an_invalid_parameter(
    broker: ServedBroker, code: Code, queue_id: str
) -> None:
    answer = await broker.ask(code, {"topic": "orders", "queueId": queue_id, "timestamp": "5"})
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_queue_beyond_the_end_of_a_shrunk_topic_can_still_be_asked(
    broker: ServedBroker,
) -> None:
    broker.put("orders", queue_id=3)
    broker.create_topic("orders", queues=1)
    answer = await broker.ask(Code.GET_MAX_OFFSET, {"topic": "orders", "queueId": "3"})
    assert answer.ext == {"offset": "1"}


async def test_offset_table_has_bare_queue_ids(broker: ServedBroker) -> None:
    await commit(broker, 5)
    answer = await broker.ask(Code.GET_ALL_CONSUMER_OFFSET)
    assert b'"offsetTable":{"orders@billing":{0:5}}' in answer.body
    assert fastjson.loads(answer.body)["offsetTable"] == {"orders@billing": {"0": 5}}
