"""What a master of haMode=classic answers to slaves and operators."""

import json
from pathlib import Path

import pytest

from rockhopper.broker.assembly.classic.slave_port import Slave, SlavePort
from rockhopper.broker.processors.classic import ClassicProcessors
from rockhopper.broker.remoting.dispatcher import Request
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from tests.support.open_stores import Stores, put


@pytest.fixture
def processors(tmp_path: Path) -> ClassicProcessors:
    store = Stores(tmp_path).open()
    put(store)
    slaves = SlavePort(store, 4096, heartbeat_s=5, silence_s=20)
    slaves.port = 10912
    slaves.slaves.add(Slave("10.0.0.2:4711", acknowledged_offset=0))
    return ClassicProcessors(slaves, store, "10.0.0.1:10911", "10.0.0.1")


def request(code: RequestCode) -> Request:
    return Request(None, Command(code=code, opaque=1))  # type: ignore[arg-type]


def test_slaves_are_listed(processors: ClassicProcessors) -> None:
    info = json.loads(processors.ha_status(request(RequestCode.GET_BROKER_HA_STATUS)).body)
    assert info["master"] is True
    assert [each["addr"] for each in info["haConnectionInfo"]] == ["10.0.0.2:4711"]
    assert info["haConnectionInfo"][0]["diff"] == info["masterCommitLogMaxOffset"] > 0


def test_a_slave_is_told_where_its_master_is(processors: ClassicProcessors) -> None:
    answer = processors.exchange(request(RequestCode.EXCHANGE_BROKER_HA_INFO))
    assert answer.ext is not None
    assert answer.ext["masterHaAddress"] == "10.0.0.1:10912"
    assert answer.ext["masterAddress"] == "10.0.0.1:10911"


def test_a_master_has_no_masters_flush_offset(processors: ClassicProcessors) -> None:
    rows = processors.rows()
    answer = rows[RequestCode.RESET_MASTER_FLUSH_OFFSET].processor(
        request(RequestCode.RESET_MASTER_FLUSH_OFFSET)
    )
    assert answer is not None
    assert processors.reset_flush_offset(request(RequestCode.RESET_MASTER_FLUSH_OFFSET)).code == (
        ResponseCode.SUCCESS
    )
