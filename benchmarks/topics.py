"""The topics, the group and the user of the load generator, created over the network."""

import json
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from typing import BinaryIO

from benchmarks.errors import BenchError
from rockhopper.protocol.codes import MQ_VERSION, RequestCode
from rockhopper.protocol.signing import Credentials, sign_fields

TOPIC = "LoadTest"
QUEUE_COUNT = 4
WIDE_TOPIC = "LoadTestWide"
"""A queue for each of the parked pulls: four connections with 64 each."""
WIDE_QUEUE_COUNT = 256
SQL_TOPIC = "LoadTestSql"
"""All of its messages have a property that the filter tests."""
GROUP = "load_consumers"
ADMIN = Credentials("admin", "the secret of the admin")
SENDER = Credentials("sender", "the secret of the sender")
"""The user of signed sends; a rule allows it to send to the topics."""
TOPICS_PER_REQUEST = 1000
TIMEOUT_S = 120
POLL_S = 0.1
READ_AND_WRITE = 6


def prepare(port: int, admin: Credentials | None = None) -> None:
    """Create the topics and the group on the broker at *port*, which has none of them yet.

    With *admin*, on a broker that requires users, also the user that may send to the topics.
    """
    topics = {TOPIC: QUEUE_COUNT, WIDE_TOPIC: WIDE_QUEUE_COUNT, SQL_TOPIC: QUEUE_COUNT}
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        _create(connection, topics.items(), admin)
        body = {"groupName": GROUP}
        _ask(connection, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body, admin=admin)
        if admin is not None:
            _create_sender(connection, admin)


def spread(port: int, count: int) -> None:
    """Create *count* more topics of one queue each, to spread sends over."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        for start in range(0, count, TOPICS_PER_REQUEST):
            numbers = range(start, min(count, start + TOPICS_PER_REQUEST))
            _create(connection, ((f"{TOPIC}-{number}", 1) for number in numbers))


def _create_sender(connection: socket.socket, admin: Credentials) -> None:
    name = SENDER.access_key
    user = {"username": name, "password": SENDER.secret, "userType": "Normal"}
    _ask(connection, RequestCode.AUTH_CREATE_USER, user, {"username": name}, admin)
    entry = {"resource": [f"Topic:{TOPIC}*"], "actions": ["Pub"], "decision": "Allow"}
    rules = {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": [entry]}]}
    _ask(connection, RequestCode.AUTH_CREATE_ACL, rules, {"subject": f"User:{name}"}, admin)


def wait_until_dispatched(port: int, admin: Credentials | None = None) -> None:
    """Wait until all messages that the broker at *port* has stored are in its queues.

    Apache's broker answers a send before that, and falls behind by many seconds.
    """
    deadline = time.monotonic() + TIMEOUT_S
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        while _behind_bytes(connection, admin) != 0:
            if time.monotonic() > deadline:
                raise BenchError("The broker does not dispatch what it has stored.")
            time.sleep(POLL_S)


def _behind_bytes(connection: socket.socket, admin: Credentials | None) -> int | None:
    """Return the size of the log that is not dispatched yet.

    In its first second Apache's broker does not know it; the result is then None.
    """
    try:
        return int(runtime_info(connection, admin)["dispatchBehindBytes"])
    except BenchError:
        return None


def runtime_info(connection: socket.socket, admin: Credentials | None = None) -> dict[str, str]:
    """Return the broker's runtime information."""
    body = _ask(connection, RequestCode.GET_BROKER_RUNTIME_INFO, {}, admin=admin)
    table: dict[str, str] = json.loads(body)["table"]
    return table


def _create(
    connection: socket.socket, topics: Iterable[tuple[str, int]], admin: Credentials | None = None
) -> None:
    configs = [
        {
            "topicName": name,
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": READ_AND_WRITE,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": {},
        }
        for name, queues in topics
    ]
    body = {"topicConfigList": configs}
    _ask(connection, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body, admin=admin)


def _ask(
    connection: socket.socket,
    code: RequestCode,
    body: Mapping[str, object],
    fields: Mapping[str, str] | None = None,
    admin: Credentials | None = None,
) -> bytes:
    text = json.dumps(body).encode()
    ext = dict(fields or {})
    command = {
        "code": code,
        "extFields": ext if admin is None else sign_fields(admin, ext, text, MQ_VERSION),
        "flag": 0,
        "language": "JAVA",
        "opaque": 1,
        "serializeTypeCurrentRPC": "JSON",
        "version": MQ_VERSION,
    }
    header = json.dumps(command).encode()
    size = 4 + len(header) + len(text)
    connection.sendall(struct.pack(">II", size, len(header)) + header + text)
    with connection.makefile("rb") as answers:
        answer, answer_body = _read_answer(answers)
    if answer["code"] != 0:
        raise BenchError(f"The broker refused {code.name}: {answer}")
    return answer_body


def _read_answer(answers: BinaryIO) -> tuple[dict[str, object], bytes]:
    size, header_size = struct.unpack(">II", answers.read(8))
    frame = answers.read(size - 4)
    return json.loads(frame[:header_size]), frame[header_size:]
