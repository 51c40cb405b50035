"""Replies: pushed to the client that asked, and the replier learns whether they arrived."""

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.members.consumer_groups import Client
from rockhopper.broker.store.files.errors import StoreBusyError
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.properties import decode_properties
from tests.support.direct import short_send_fields
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


class Requester(Peer):
    """A producer that waits for a reply."""

    def __init__(self, broker: ServedBroker, client_id: str = "asker") -> None:
        super().__init__()
        self.pushed: list[tuple[dict[str, str], bytes]] = []
        self.outcome: Command | Exception = Command(0)
        broker.kernel.producers.register("askers", Client(self.connection, client_id, 0, 479))

    async def call(self, code: int, ext: dict[str, str], body: bytes, timeout_s: float) -> Command:
        assert code == Code.PUSH_REPLY_MESSAGE_TO_CLIENT
        self.pushed.append((ext, body))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.fixture(autouse=True)
def reply_topic(broker: ServedBroker) -> None:
    broker.create_topic(REPLY_TOPIC)


async def reply(broker: ServedBroker, client_id: str | None = "asker", **fields: str) -> Command:
    properties = "CORRELATION_ID\x01id-1\x02"
    if client_id is not None:
        properties += f"REPLY_TO_CLIENT\x01{client_id}\x02"
    ext = short_send_fields(REPLY_TOPIC, properties=properties) | fields
    return await broker.ask(Code.SEND_REPLY_MESSAGE_V2, ext, b"yes")


async def test_a_reply_is_pushed_with_what_the_requester_knows_it_by(
    broker: ServedBroker, clock: Clock
) -> None:
    requester = Requester(broker)
    assert (await reply(broker)).code == ResponseCode.SUCCESS
    ((ext, body),) = requester.pushed
    assert body == b"yes"
    properties = decode_properties(ext["properties"])
    assert properties["CORRELATION_ID"] == "id-1"
    assert properties["PUSH_REPLY_TIME"] == str(clock.now_ms)
    assert ext["topic"] == REPLY_TOPIC
    assert (ext["bornHost"], ext["storeHost"]) == ("127.0.0.1:40000", "127.0.0.1:10911")


@pytest.mark.parametrize("keeps", [True, False])
async def test_it_is_kept_only_where_that_is_set(broker: ServedBroker, keeps: bool) -> None:
    broker.config.live.store_reply_messages = keeps
    Requester(broker)
    answer = await reply(broker)
    assert answer.code == ResponseCode.SUCCESS
    assert broker.store.reading.queue_range(REPLY_TOPIC, 0) == (0, int(keeps))
    assert ((answer.ext or {})["msgId"] == "0") is not keeps


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_topic_that_nobody_may_send_to_takes_no_replies(
    broker: ServedBroker, keeps: bool
) -> None:
    broker.config.live.store_reply_messages = keeps
    broker.create_topic(REPLY_TOPIC, perm=4)
    requester = Requester(broker)
    assert (await reply(broker)).code == ResponseCode.NO_PERMISSION
    assert requester.pushed == []


@pytest.mark.parametrize(
    ("client_id", "says"),
    [
        (None, "only a message that was sent as a request can have a reply"),
        ("stranger", "channel of <stranger> not found"),
        ("s" * 5000, "channel of <sss"),
    ],
)
async def test_a_reply_to_nobody_says_so(
    broker: ServedBroker, client_id: str | None, says: str
) -> None:
    requester = Requester(broker)
    answer = await reply(broker, client_id)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert says in str(answer.remark)
    assert len(str(answer.remark)) < 500
    assert requester.pushed == []


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (TimeoutError(), "push reply message to asker fail: no answer within 10 s"),
        (ConnectionResetError("gone"), "fail: gone"),
        (Command(1, remark="no such request"), "fail: no such request"),
        (Command(7), "fail: code 7"),
    ],
)
async def test_a_requester_that_does_not_take_it_is_named(
    broker: ServedBroker, outcome: Command | Exception, says: str
) -> None:
    Requester(broker).outcome = outcome
    answer = await reply(broker)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert says in str(answer.remark)


async def test_what_cannot_be_stored_now_is_pushed_all_the_same(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    requester = Requester(broker)

    def refuse() -> None:
        raise StoreBusyError("too much waits")

    monkeypatch.setattr(broker.store, "check_writable", refuse)
    with capture_logs() as logs:
        answer = await reply(broker)
    assert answer.code == ResponseCode.SUCCESS
    assert (answer.ext or {})["msgId"] == "0"
    assert len(requester.pushed) == 1
    assert [entry["reason"] for entry in logs] != []


async def test_a_batch_is_no_reply(broker: ServedBroker) -> None:
    Requester(broker)
    answer = await reply(broker, m="true")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_who_asks_before_its_first_heartbeat_is_known_by_the_request(
    broker: ServedBroker,
) -> None:
    broker.create_topic("questions")
    peer = Peer()
    properties = "REPLY_TO_CLIENT\x01early\x02CORRELATION_ID\x01id-1\x02"
    fields = short_send_fields("questions", properties=properties)
    await broker.ask(Code.SEND_MESSAGE_V2, fields, b"?", peer=peer)
    found = broker.kernel.producers.find("early")
    assert found is not None
    assert found.connection is peer.connection
