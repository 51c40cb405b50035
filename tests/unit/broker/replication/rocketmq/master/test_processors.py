"""What RocketMQ's slaves ask: their tables for every machine, and none for those that lose them."""

import pytest

from rockhopper.broker.processor_table import build_table
from rockhopper.broker.replication.rocketmq.master.master import ClassicMaster
from rockhopper.broker.replication.rocketmq.master.processors import ClassicProcessors
from rockhopper.broker.server.remoting.dispatcher import Dispatcher
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import LanguageCode, ResponseCode
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.command import Command
from tests.support.features import needs
from tests.support.peers import Peer
from tests.support.served_broker import ServedBroker

APACHE_5_5 = 513
SLAVE = "10.0.0.2"
TABLES = (
    Code.GET_ALL_TOPIC_CONFIG,
    Code.GET_ALL_CONSUMER_OFFSET,
    Code.GET_ALL_DELAY_OFFSET,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    pytest.param(Code.GET_ALL_MESSAGE_REQUEST_MODE, marks=needs("pop")),
    Code.GET_TIMER_CHECK_POINT,
    Code.GET_TIMER_METRICS,
)


class Refusals(ClassicMaster):
    """A master that remembers whom it was told to refuse."""

    def __init__(self, broker: ServedBroker) -> None:
        super().__init__(broker.store, broker.config)
        self.hosts: list[str] = []

    def refuse(self, host: str, reason: str) -> None:
        assert "9984" in reason
        self.hosts.append(host)


@pytest.fixture
def master(broker: ServedBroker) -> Refusals:
    """Has the broker serve slaves."""
    master = Refusals(broker)
    table = build_table(broker)
    classic = ClassicProcessors(
        master, broker.store, lambda peer: f"{peer.addresses.local_host}:10911", ha_port=10_912
    )
    broker.dispatcher = Dispatcher(table | classic.rows(table), AccessRules(remote_admin=False))
    return master


@pytest.mark.parametrize("code", TABLES)
async def test_slaves_elsewhere_get_their_tables(
    code: Code, broker: ServedBroker, master: Refusals
) -> None:
    answer = await broker.ask(code, peer=Peer(SLAVE), version=APACHE_5_5)
    assert answer.code == ResponseCode.SUCCESS
    assert master.hosts == []


async def test_nothing_else_is_opened_to_other_machines(
    broker: ServedBroker, master: Refusals
) -> None:
    fields = {"topic": "orders"}
    for code in (Code.DELETE_TOPIC_IN_BROKER, Code.UPDATE_BROKER_CONFIG, Code.GET_BROKER_HA_STATUS):
        answer = await broker.ask(code, fields, peer=Peer(SLAVE), version=APACHE_5_5)
        assert answer.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("version", [479, 481])
async def test_releases_that_delete_their_tables_are_refused(
    version: int, broker: ServedBroker, master: Refusals
) -> None:
    for code in (Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
        answer = await broker.ask(code, peer=Peer(SLAVE), version=version)
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert "5.4.0 or later" in (answer.remark or "")
    assert master.hosts == []
    await broker.ask(Code.GET_TIMER_CHECK_POINT, peer=Peer(SLAVE), version=version)
    assert master.hosts == [SLAVE]


async def test_a_client_of_ours_is_taken_for_no_slave(
    broker: ServedBroker, master: Refusals
) -> None:
    command = Command(
        Code.GET_TIMER_CHECK_POINT, opaque=7, language=LanguageCode.PYTHON.value, version=479
    )
    assert broker.begin(Peer(SLAVE), command)
    assert master.hosts == []


async def test_a_slave_is_told_where_to_follow(broker: ServedBroker, master: Refusals) -> None:
    answer = await broker.ask(Code.EXCHANGE_BROKER_HA_INFO, peer=Peer(SLAVE), version=APACHE_5_5)
    assert answer.ext is not None
    assert answer.ext["masterAddress"] == "127.0.0.1:10911"
    assert answer.ext["masterHaAddress"] == "127.0.0.1:10912"
    assert answer.ext["masterFlushOffset"] == str(broker.store.log.flushed_offset)


async def test_a_master_follows_nobody(broker: ServedBroker, master: Refusals) -> None:
    fields = {"masterHaAddress": "10.0.0.9:10912"}
    answer = await broker.ask(Code.EXCHANGE_BROKER_HA_INFO, fields, version=APACHE_5_5)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    reset = await broker.ask(Code.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": "1"})
    assert reset.code == ResponseCode.SUCCESS


async def test_the_status_is_a_masters(broker: ServedBroker, master: Refusals) -> None:
    answer = await broker.ask(Code.GET_BROKER_HA_STATUS)
    found = fastjson.loads(answer.body)
    assert (found["master"], found["inSyncSlaveNums"], found["haConnectionInfo"]) == (True, 0, [])
