"""A user gets nothing of topics that are not his by naming another place than he says.

The broker may read everything, and is asked to do it for who may not. Below tests/unit/broker are

- a place in the log (33, 36, 309), notes of a replica set: here, kernel/send/test_looking_up
- the half message of another topic (37): kernel/processors/test_transactions,
  test_an_end_needs_the_right_to_the_topic_of_its_half_message_whatever_it_names
- a handle of another topic (370): kernel/processors/test_recall, test_another_handle_is_refused
- a forged receipt handle (5.x): gateways/grpc/activities/test_settling,
  test_a_forged_handle_reads_no_other_topic
- another's client id (5.x): gateways/grpc/test_sessions,
  test_nobody_takes_over_another_users_client
- a retry topic of another group: server/remoting/test_needs,
  test_a_retry_topic_stands_for_its_group
- a code without a need: server/remoting/test_gate, test_a_row_without_needs_serves_nobody, and
  kernel/processors/test_table, test_every_row_names_an_action_and_what_it_is_about
- white lists that would change the cluster: server/remoting/test_gate,
  test_unsigned_requests_are_served_where_listed_but_never_change_the_cluster
- a page for who claims to be this host: server/remoting/test_http,
  test_this_host_is_who_connects_from_it_whatever_he_says
- Super users from a broker's mouth: name_server/test_shared_accounts,
  test_a_super_user_alone_shares
"""

from typing import NamedTuple

import pytest

from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.broker.processor_table import build_table
from rockhopper.broker.server.remoting.permissions import check_access
from rockhopper.broker.users.accounts import Pattern, Rule, User, parse_actions
from rockhopper.broker.users.errors import NoPermission
from rockhopper.broker.users.guard import Guard
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.message_ids import offset_message_id
from rockhopper.protocol.names import STATE_TOPIC
from rockhopper.protocol.subscription import Subscription
from tests.support.features import needs
from tests.support.peers import UsersPeer
from tests.support.served_broker import ServedBroker


@pytest.fixture
def secret_offset(broker: ServedBroker) -> int:
    """Where a message of a topic stands that alice may not read."""
    for name in ("mine", "theirs"):
        broker.create_topic(name)
    return broker.put("theirs", b"not for alice").commit_log_offset


@pytest.fixture
def alice() -> UsersPeer:
    return UsersPeer("10.0.0.9", "alice")


async def test_a_message_is_looked_up_in_the_topic_that_is_named(
    broker: ServedBroker, alice: UsersPeer, secret_offset: int
) -> None:
    for topic, code in (("mine", ResponseCode.SYSTEM_ERROR), ("theirs", ResponseCode.SUCCESS)):
        ext = {"offset": str(secret_offset), "topic": topic}
        answer = await broker.ask(Code.VIEW_MESSAGE_BY_ID, ext, peer=alice)
        assert answer.code == code


async def test_a_message_is_sent_back_to_where_it_came_from(
    broker: ServedBroker, alice: UsersPeer, secret_offset: int
) -> None:
    for topic, code in (("mine", ResponseCode.SYSTEM_ERROR), ("theirs", ResponseCode.SUCCESS)):
        ext = {
            "offset": str(secret_offset),
            "group": "g",
            "delayLevel": "-1",
            "originTopic": topic,
        }
        answer = await broker.ask(Code.CONSUMER_SEND_MSG_BACK, ext, peer=alice)
        assert answer.code == code
    assert broker.store.reading.queue_range("%DLQ%g", 0) == (0, 1)


async def test_where_there_are_no_users_nothing_changes(
    broker: ServedBroker, secret_offset: int
) -> None:
    ext = {"offset": str(secret_offset)}
    assert (await broker.ask(Code.VIEW_MESSAGE_BY_ID, ext)).code == ResponseCode.SUCCESS
    ext |= {"group": "g", "delayLevel": "-1"}
    assert (await broker.ask(Code.CONSUMER_SEND_MSG_BACK, ext)).code == ResponseCode.SUCCESS


class Asking(NamedTuple):
    """A request, as needs look at it."""

    code: int
    principal: Principal
    ext: dict[str, str]
    body: bytes


class Listening(UsersPeer):
    """A consumer of alice's that keeps what it is asked to consume."""

    def __init__(self, broker: ServedBroker) -> None:
        super().__init__("10.0.0.9", "alice")
        self.consumed: list[bytes] = []
        settings = {"mine": Subscription("mine", "*")}
        broker.kernel.consumers.register(
            "g", Client(self.connection, "c1", 0, 479), ConsumeSettings(), settings
        )

    async def call(self, code: int, ext: dict[str, str], body: bytes, timeout_s: float) -> Command:
        self.consumed.append(body)
        return Command(0)


def directly(topic: str, log_offset: int) -> dict[str, str]:
    message_id = offset_message_id(bytes(4), 10_911, log_offset)
    return {"consumerGroup": "g", "clientId": "c1", "topic": topic, "msgId": message_id}


async def test_a_message_is_consumed_directly_as_one_of_its_topic(
    broker: ServedBroker, alice: UsersPeer, secret_offset: int
) -> None:
    consumer = Listening(broker)
    local = UsersPeer("127.0.0.1", "alice")
    answer = await broker.ask(
        Code.CONSUME_MESSAGE_DIRECTLY, directly("mine", secret_offset), peer=local
    )
    assert (answer.code, consumer.consumed) == (ResponseCode.SYSTEM_ERROR, [])
    answer = await broker.ask(
        Code.CONSUME_MESSAGE_DIRECTLY, directly("theirs", secret_offset), peer=local
    )
    assert (answer.code, len(consumer.consumed)) == (ResponseCode.SUCCESS, 1)


@pytest.mark.parametrize("user", ["", "alice", "root"])
async def test_notes_of_a_replica_set_are_messages_for_nobody(
    broker: ServedBroker, user: str
) -> None:
    broker.create_topic(STATE_TOPIC, queues=1)
    offset = broker.put(STATE_TOPIC, b"the secret of root").commit_log_offset
    consumer = Listening(broker)
    local = UsersPeer("127.0.0.1", user)
    at = {"offset": str(offset)}
    back = at | {"group": "g", "delayLevel": "-1", "originTopic": STATE_TOPIC}
    for code, ext in (
        (Code.VIEW_MESSAGE_BY_ID, at | {"topic": STATE_TOPIC}),
        (Code.CONSUMER_SEND_MSG_BACK, back),
        (Code.CONSUME_MESSAGE_DIRECTLY, directly(STATE_TOPIC, offset)),
    ):
        answer = await broker.ask(code, ext, peer=local)
        assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")
    assert consumer.consumed == []
    assert broker.store.reading.queue_range("%DLQ%g", 0) == (0, 0)


NAMING_A_TOPIC = (
    Code.PULL_MESSAGE,
    Code.LITE_PULL_MESSAGE,
    pytest.param(Code.POP_MESSAGE, marks=needs("pop")),
    pytest.param(Code.PEEK_MESSAGE, marks=needs("pop")),
    pytest.param(Code.BULK_PULL, marks=needs("bulk_pull")),
    pytest.param(Code.BULK_PULL_QUEUES, marks=needs("bulk_pull")),
    Code.QUERY_MESSAGE,
    Code.VIEW_MESSAGE_BY_ID,
    Code.UPDATE_AND_CREATE_TOPIC,
    Code.DELETE_TOPIC_IN_BROKER,
    Code.PURGE_TOPIC,
)


@pytest.mark.parametrize("authorizes", [True, False])
@pytest.mark.parametrize("code", NAMING_A_TOPIC)
async def test_notes_of_a_replica_set_are_read_by_super_users_alone(
    broker: ServedBroker, code: Code, authorizes: bool
) -> None:
    guard = Guard(remote_admin=True, authenticates=True, authorizes=authorizes)
    users = {"alice": User("alice", "secret"), "root": User("root", "secret", is_super=True)}
    rule = Rule(Pattern.parse("*"), parse_actions(["All"]), (), is_allowed=True)
    guard.use(users, {"alice": [rule]})
    permissions = build_table(broker)[code].permissions

    def ask(topic: str, user: str) -> None:
        fields = {"topic": topic, "consumerGroup": "g"}
        principal = Principal("10.0.0.9", user)
        check_access(guard, Asking(int(code), principal, fields, b""), permissions)

    ask("mine", "alice")
    ask(STATE_TOPIC, "root")
    with pytest.raises(NoPermission, match=f"Topic:{STATE_TOPIC}"):
        ask(STATE_TOPIC, "alice")
