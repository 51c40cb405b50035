"""The table: what is served to whom."""

import pytest

from rockhopper.broker.processors.table import build_table
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from tests.support.served_broker import ServedBroker

# Codes that clients without special rights need; everything else is an administrator's.
FOR_EVERYBODY = {
    10,
    11,
    12,
    14,
    15,
    29,
    30,
    31,
    32,
    33,
    34,
    35,
    36,
    37,
    38,
    41,
    42,
    46,
    310,
    320,
    324,
    325,
    361,
    370,
}
POP = {200_050, 200_051, 200_052, 200_053, 200_054, 200_055, 200_151}
# Ours: jobs read in bulk and write in whole batches.
FOR_EVERYBODY |= {70_001, 70_002, 70_003, 70_004, 70_005, 70_007, 70_008}
FOR_EVERYBODY |= POP | {code & 0xFFFF for code in POP} | {400}


async def test_clients_codes_are_for_everybody_and_all_others_for_administrators(
    broker: ServedBroker,
) -> None:
    table = build_table(broker)
    assert {int(code) for code, entry in table.items() if not entry.admin} == FOR_EVERYBODY


@pytest.mark.parametrize(
    "code",
    [
        Code.UPDATE_BROKER_CONFIG,
        Code.GET_BROKER_CONFIG,
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.GET_ALL_CONSUMER_OFFSET,
    ],
)
async def test_administrators_codes_are_refused_to_others(broker: ServedBroker, code: Code) -> None:
    broker.administrators_allowed = False
    answer = await broker.ask(code, {"topic": "orders", "groupName": "billing"})
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "remoteAdmin" in (answer.remark or "")


async def test_code_that_is_not_in_the_table_is_not_supported(broker: ServedBroker) -> None:
    answer = await broker.ask(Code.SUSPEND_CONSUMER)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 209 not supported"
