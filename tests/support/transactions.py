"""The requests of a transaction producer: half messages, their ends, and heartbeats."""

import json
from typing import NamedTuple

from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.message_ids import decode_offset_message_id
from rockhopper.protocol.properties import join_properties

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
GROUP = "payers"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
HOLD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


class Half(NamedTuple):
    """A half message, as named in the answer to its send."""

    offset: int
    log_offset: int
    unique_key: str
    message_id: str


def half_fields(
    topic: str, unique_key: str, *, group: str = GROUP, born_ms: int = 0, **properties: str
) -> dict[str, str]:
    """Return the header of a half message (code 310), as Java's producer sends it."""
    return {
        "a": group,
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "4",
        "g": str(born_ms),
        "h": "0",
        "i": join_properties(
            {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": unique_key, "WAIT": "true"}
            | properties
        ),
    }


def half_of(answer: Command) -> Half:
    """Return the half message of *answer*."""
    assert answer.code == 0, answer.remark
    ext = answer.ext or {}
    log_offset = decode_offset_message_id(ext["msgId"])[2]
    return Half(int(ext["queueOffset"]), log_offset, ext["transactionId"], ext["msgId"])


def end_fields(half: Half, how: int, **changes: object) -> dict[str, str]:
    """Return the header of END_TRANSACTION (37)."""
    fields: dict[str, object] = {
        "producerGroup": GROUP,
        "tranStateTableOffset": half.offset,
        "commitLogOffset": half.log_offset,
        "commitOrRollback": how,
        "fromTransactionCheck": "false",
        "msgId": half.unique_key,
        "transactionId": half.unique_key,
    }
    return {name: str(value) for name, value in (fields | changes).items()}


def checked(push: Command) -> Half:
    """Return the half message that a check (39) asks about."""
    assert push.code == RequestCode.CHECK_TRANSACTION_STATE
    assert push.is_oneway
    ext = push.ext or {}
    return Half(
        int(ext["tranStateTableOffset"]),
        int(ext["commitLogOffset"]),
        ext["transactionId"],
        ext["offsetMsgId"],
    )


def producer_heartbeat(client_id: str, group: str = GROUP) -> bytes:
    """Return the body of a producer's heartbeat (34)."""
    return json.dumps(
        {
            "clientID": client_id,
            "consumerDataSet": [],
            "producerDataSet": [{"groupName": group}],
        }
    ).encode()
