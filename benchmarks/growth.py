"""Whether costs grow with something that should not matter: each operation at two sizes.

    python -m benchmarks.growth [--only WORD …] [--tries 3] [--directory /tmp]

Each operation gets its own broker, prepared at a small size and then at one ten times as large. The
output shows, for one operation: the broker's processor time (all threads, including system time),
the bytes it wrote (``wchar`` of /proc, without sockets), and the longest turn of its event loop in
processor time (benchmarks/watched_broker.py). The best of several tries counts.

The exit code is 1 if a cost that should be constant grows by more than half at the larger size, or
if a turn takes longer than 50 ms. A LINEAR operation visits everything by its nature: its cost per
item should be constant. Of a BOUNDED operation only the turns count.

Run it on a quiet machine, before a release and for a change that affects one of these.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.load import HERE
from benchmarks.stalls import LIST_LENGTH, SETTINGS, Broker, Client, send
from rockhopper.protocol.codes import MQ_VERSION
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.signing import Credentials, sign_fields

GROWTH_MAX, STALL_MS = 1.5, 50.0
CPU_NOISE_US, WRITTEN_NOISE_BYTES = 60.0, 8192.0
"""Smaller differences for one operation are noise."""
SETTLING_S = 0.3
SETTLED_US = 20_000
SETTLING_ROUNDS_MAX = 30
CONSTANT, LINEAR, BOUNDED = "constant", "linear", "bounded"
YEAR_S = 31_557_600
ADMIN = Credentials("admin", "growth-secret-0")
USER = Credentials("grower", "growth-secret-1")
SECURED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret}),
}
_ACK_ITEM = re.compile(r"(\d+) (-?\d+) (\S+)")

Request = tuple[int, Mapping[str, Any], bytes]
Act = Callable[[int], object]
"""Does one operation; it is called with 0, 1, 2 and so on."""


@dataclass(frozen=True)
class Operation:
    """One line of the table."""

    name: str
    prepare: Callable[[Broker, int], Act]
    """Brings a broker to a size."""
    small: int
    times: int
    """How often one try repeats the operation."""
    kind: str = CONSTANT
    settings: Mapping[str, object] = field(default_factory=dict)
    settling_s: float = 0.0
    """How long the broker must be idle before the measurement."""
    has_name_server: bool = False
    """Whether the broker registers with another broker, whose costs also count."""


@dataclass
class Cost:
    """The cost of one operation at one size."""

    cpu_us: float
    written_bytes: float
    turn_ms: float
    where: list[Any]


def ask_each(client: Client, requests: Callable[[int], Request]) -> Act:
    """Return an operation that is one request."""
    return lambda n: client.ask(*requests(n))


def make_topics(broker: Broker, n: int) -> None:
    """Create *n* topics of one queue."""
    broker.make_topics((f"topic-{i}", 1) for i in range(n))


def make_groups(broker: Broker, n: int) -> None:
    """Create *n* groups."""
    names = [{"groupName": f"group-{i}"} for i in range(n)]
    for start in range(0, n, LIST_LENGTH):
        body = json.dumps({"groupConfigList": names[start : start + LIST_LENGTH]}).encode()
        broker.client.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, body)


def signed(user: Credentials, request: Request) -> Request:
    """Return a request signed by a user."""
    code, ext, body = request
    texts = {name: str(value) for name, value in ext.items()}
    return code, sign_fields(user, texts, body, MQ_VERSION), body


def rules(resources: list[str]) -> bytes:
    """Return the body that allows all actions on these resources."""
    entry = {"resource": resources, "actions": ["All"], "sourceIps": [], "decision": "Allow"}
    return json.dumps({"policies": [{"policyType": "Custom", "entries": [entry]}]}).encode()


def user_made(name: str, secret: str) -> Request:
    """Return the request that creates a user."""
    body = {"username": name, "password": secret, "userType": "Normal", "userStatus": "enable"}
    return signed(ADMIN, (Code.AUTH_CREATE_USER, {"username": name}, json.dumps(body).encode()))


def rule_made(name: str, resources: list[str]) -> Request:
    """Return the request that gives a user rules."""
    subject = {"subject": f"User:{name}"}
    return signed(ADMIN, (Code.AUTH_CREATE_ACL, subject, rules(resources)))


def a_send(broker: Broker, n: int) -> Act:
    """Return a send with *n* topics."""
    make_topics(broker, n)
    return ask_each(broker.client, lambda _: send("topic-1", 0))


def a_send_among_connections(broker: Broker, n: int) -> Act:
    """Return a send while *n* other clients are connected."""
    make_topics(broker, 2)
    idle = [Client(broker.port) for _ in range(n)]
    for client in idle:
        client.ask(*send("topic-0", 0))
    act = ask_each(broker.client, lambda _: send("topic-1", 0))
    return lambda i: (act(i), idle)


def a_send_with_rules(broker: Broker, n: int) -> Act:
    """Return a send by a user with *n* rules."""
    client = broker.client
    client.ask(*user_made(USER.access_key, USER.secret))
    for start in range(0, n, 500):
        client.ask(*rule_made(USER.access_key, [f"Topic:topic-{start + i}" for i in range(500)]))
    topic = {"topic": "topic-1", "defaultTopic": "TBW102", "readQueueNums": 1}
    topic |= {"writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    client.ask(*signed(ADMIN, (Code.UPDATE_AND_CREATE_TOPIC, topic, b"")))
    return ask_each(client, lambda _: signed(USER, send("topic-1", 0)))


def a_topic(broker: Broker, n: int) -> Act:
    """Return the creation of one more topic."""
    make_topics(broker, n)
    names = count()

    def request(_: int) -> Request:
        ext = {"topic": f"new-{next(names)}", "defaultTopic": "TBW102", "readQueueNums": 1}
        ext |= {"writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        return Code.UPDATE_AND_CREATE_TOPIC, ext, b""

    return ask_each(broker.client, request)


def a_group(broker: Broker, n: int) -> Act:
    """Return the creation of one more group."""
    make_groups(broker, n)
    names = count()
    return ask_each(
        broker.client,
        lambda _: (
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {},
            json.dumps({"groupName": f"new-{next(names)}"}).encode(),
        ),
    )


def a_user(broker: Broker, n: int) -> Act:
    """Return the creation of one more user."""
    broker.client.ask_all(user_made(f"user-{i}", USER.secret) for i in range(n))
    names = count()
    return ask_each(broker.client, lambda _: user_made(f"new-{next(names)}", USER.secret))


def a_rule(broker: Broker, n: int) -> Act:
    """Return the first rule of another user."""
    users = [f"user-{i}" for i in range(n)]
    broker.client.ask_all(user_made(name, USER.secret) for name in users)
    broker.client.ask_all(rule_made(name, ["Topic:orders"]) for name in users)
    broker.client.ask_all(user_made(f"new-{i}", USER.secret) for i in range(200))
    names = count()
    return ask_each(broker.client, lambda _: rule_made(f"new-{next(names)}", ["Topic:orders"]))


def commit(group: str, topic: str, offset: int) -> Request:
    """Return the request that commits an offset."""
    ext = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": offset}
    return Code.UPDATE_CONSUMER_OFFSET, ext, b""


def commit_all(broker: Broker, n: int) -> None:
    """Commit *n* offsets of 50 groups, spread over topics."""
    make_topics(broker, n // 50)
    make_groups(broker, 50)
    broker.client.ask_all(commit(f"group-{i % 50}", f"topic-{i // 50}", 0) for i in range(n))


def a_commit(broker: Broker, n: int) -> Act:
    """Return the commit of one more offset."""
    commit_all(broker, n)
    offsets = count(1)
    return ask_each(broker.client, lambda _: commit("group-1", "topic-1", next(offsets)))


def group_list(broker: Broker, n: int) -> Act:
    """Return the command `group list`, whose cost to the broker counts."""
    commit_all(broker, n)
    command = [sys.executable, "-m", "rockhopper.client"]
    command += ["group", "list", "--json", "-n", f"127.0.0.1:{broker.names_port}"]
    return lambda _: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=HERE.parent)


def key_look_up(broker: Broker, n: int) -> Act:
    """Return a look-up by key in a time window before *n* messages of that key."""
    make_topics(broker, 2)
    broker.client.ask_all(send("topic-1", 0, "KEYS\x01one\x02") for _ in range(n))
    ext = {"topic": "topic-1", "key": "one", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1}

    def act(_: int) -> None:
        broker.client.send(Code.QUERY_MESSAGE, ext)
        broker.client.receive()

    return act


def filtered_pull(broker: Broker, n: int) -> Act:
    """Return a pull whose long filter expression no message passes."""
    make_topics(broker, 2)
    make_groups(broker, 2)
    value = "v" * 100
    broker.client.ask_all(send("topic-1", 0, f"a\x01{value}\x02") for _ in range(n))
    words = " OR ".join(f"a LIKE '%{i}x%'" for i in range(500))
    ext = {"consumerGroup": "group-1", "topic": "topic-1", "queueId": 0, "queueOffset": 0}
    ext |= {"maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0}
    ext |= {"subscription": words, "subVersion": 1, "expressionType": "SQL92"}

    def act(_: int) -> None:
        broker.client.send(Code.PULL_MESSAGE, ext)
        broker.client.receive()

    return act


def pop(topic: str, **changes: object) -> Request:
    """Return a pop of group-1."""
    ext: dict[str, object] = {"consumerGroup": "group-1", "topic": topic, "queueId": -1}
    ext |= {"maxMsgNums": 32, "invisibleTime": 600_000, "pollTime": 0, "bornTime": 0}
    ext |= {"initMode": 0, "order": "false"}
    return Code.POP_MESSAGE, ext | changes, b""


def an_ack(broker: Broker, n: int) -> Act:
    """Return an acknowledgement of the oldest of *n* messages, of which half are acknowledged."""
    make_topics(broker, 2)
    make_groups(broker, 2)
    broker.client.ask_all(send("topic-1", 0) for _ in range(n))
    acks: list[Request] = []
    while len(acks) < n:
        broker.client.send(*pop("topic-1"))
        ext = broker.client.receive()[0]["extFields"]
        starts = {
            (flag, queue): start
            for flag, queue, start in (
                part.split(" ") for part in ext["startOffsetInfo"].split(";")
            )
        }
        for flag, queue, offsets in _ACK_ITEM.findall(ext["msgOffsetInfo"]):
            for offset in offsets.split(","):
                extra = (
                    f"{starts[flag, queue]} {ext['popTime']} {ext['invisibleTime']} "
                    f"{ext['reviveQid']} {flag} broker-a {queue} {offset}"
                )
                where = {"consumerGroup": "group-1", "topic": "topic-1", "queueId": queue}
                acks.append((Code.ACK_MESSAGE, where | {"extraInfo": extra, "offset": offset}, b""))
    broker.client.ask_all(acks[: n // 2])
    following: Iterator[Request] = iter(acks[n // 2 :])
    return ask_each(broker.client, lambda _: next(following))


def a_message_for_waiting_pops(broker: Broker, n: int, order: str = "false") -> Act:
    """Return a send of one message while *n* pops wait, each under its own attempt id."""
    make_topics(broker, 2)
    make_groups(broker, 2)
    waiting = [Client(broker.port) for _ in range(50)]
    attempts = count()

    def wait(client: Client) -> None:
        attempt = {"attemptId": f"a-{next(attempts)}", "bornTime": int(time.time() * 1000)}
        client.send(*pop("topic-1", **attempt, maxMsgNums=1, pollTime=200_000, order=order))

    for i in range(n):
        wait(waiting[i % len(waiting)])
    time.sleep(SETTLING_S)

    # The waiting pops' connections stay open as long as the operation exists.
    return lambda _: (broker.client.ask(*send("topic-1", 0)), waiting)


def a_message_for_orderly_pops(broker: Broker, n: int) -> Act:
    """Return a send of one message while *n* pops wait in order; most wait behind the first."""
    return a_message_for_waiting_pops(broker, n, order="true")


def a_timer(broker: Broker, n: int) -> Act:
    """Return one more timer, after *n* that are spread over a year."""
    make_topics(broker, 2)
    numbers = count()

    def request(_: int) -> Request:
        # A multiplier that does not divide a year reaches all its parts.
        due_s = time.time() + 3600 + next(numbers) * 7_919_993 % (YEAR_S - 7200)
        return send("topic-1", 0, f"TIMER_DELIVER_MS\x01{int(due_s * 1000)}\x02")

    broker.client.ask_all(request(i) for i in range(n))
    return ask_each(broker.client, request)


def transactions_checked(broker: Broker, n: int) -> Act:
    """Return some rounds of checks in which *n* open transactions are due."""
    make_topics(broker, 2)
    half = "TRAN_MSG\x01true\x02PGROUP\x01makers\x02"

    def request() -> Request:
        code, ext, body = send("topic-1", 0, half)
        return code, {**ext, "f": 4}, body

    broker.client.ask_all(request() for _ in range(n))
    return lambda _: time.sleep(3)


def at_rest(broker: Broker, n: int) -> Act:
    """Return the unchanged heartbeats of two members in each of *n* groups."""
    make_topics(broker, 2)

    def beat(member: int, first: int) -> Request:
        groups = [
            {
                "groupName": f"group-{i}",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [
                    {"topic": "topic-1", "subString": "*", "subVersion": member}
                ],
            }
            for i in range(first, min(n, first + 100))
        ]
        body = {"clientID": f"c-{member}", "producerDataSet": [], "consumerDataSet": groups}
        return Code.HEART_BEAT, {}, json.dumps(body).encode()

    clients = [Client(broker.port), Client(broker.port)]

    def act(_: int) -> None:
        for member, client in enumerate(clients):
            client.ask_all(beat(member, first) for first in range(0, n, 100))

    act(0)
    return act


CHECKS = {"transactionTimeOut": 1, "transactionCheckInterval": 1000, "transactionCheckMax": 100_000}
YEARS = {"timerMaxDelaySec": YEAR_S}
FLIGHT = {"popInflightMessageThreshold": 1_000_000}
TABLE = (
    Operation("a send, topics", a_send, 2000, 2000),
    Operation("a send, idle connections", a_send_among_connections, 100, 2000),
    Operation("a send, rules of its user", a_send_with_rules, 500, 1000, settings=SECURED),
    Operation("a topic is made, topics", a_topic, 2000, 20),
    Operation("a topic, registered elsewhere", a_topic, 2000, 20, has_name_server=True),
    Operation("a group is made, groups", a_group, 2000, 20),
    Operation("a user is made, users", a_user, 500, 20, settings=SECURED),
    Operation("a rule is made, users with rules", a_rule, 500, 20, settings=SECURED),
    Operation("a commit, offsets", a_commit, 5000, 2000),
    Operation("group list, offsets", group_list, 5000, 1, LINEAR),
    Operation("an acknowledgement, in flight", an_ack, 10_000, 1000, settings=FLIGHT),
    Operation("a message, waiting pops", a_message_for_waiting_pops, 100, 20),
    Operation("a message, orderly pops", a_message_for_orderly_pops, 100, 20),
    Operation("a timer, timers over a year", a_timer, 4000, 200, settings=YEARS, settling_s=7),
    Operation("a round of checks, open", transactions_checked, 5000, 1, LINEAR, settings=CHECKS),
    Operation("heartbeats at rest, groups", at_rest, 100, 5, LINEAR),
    Operation("a look-up by key, newer ones", key_look_up, 10_000, 3, BOUNDED),
    Operation("a filtered pull, messages", filtered_pull, 500, 3, BOUNDED),
)


def measure(operation: Operation, size: int, directory: Path | None, tries: int) -> Cost:
    """Return the best of some tries on a new broker."""
    with tempfile.TemporaryDirectory(prefix="growth-", dir=directory) as store:
        settings = {**SETTINGS, **operation.settings}
        brokers: list[Broker] = []
        try:
            if operation.has_name_server:
                brokers.append(Broker(Path(store) / "names"))
                settings["namesrvAddr"] = f"127.0.0.1:{brokers[0].names_port}"
            brokers.append(Broker(Path(store) / "broker", settings))
            act = operation.prepare(brokers[-1], size)
            _settle(brokers, operation.settling_s)
            found = [_try(brokers, operation, act) for _ in range(tries)]
        finally:
            for broker in brokers:
                broker.stop()
    return Cost(
        min(cost.cpu_us for cost in found),
        min(cost.written_bytes for cost in found),
        min(cost.turn_ms for cost in found),
        min(found, key=lambda cost: cost.turn_ms).where,
    )


def _settle(brokers: list[Broker], quiet_s: float) -> None:
    """Wait until the broker has finished all work of the preparation."""
    wanted = 1 + round(quiet_s / SETTLING_S)
    quiet = 0
    for _ in range(SETTLING_ROUNDS_MAX + wanted):
        time.sleep(SETTLING_S)
        used_us = 1e6 * sum(broker.worst()["process"] for broker in brokers)
        quiet = quiet + 1 if used_us < SETTLED_US else 0
        if quiet == wanted:
            return


def _try(brokers: list[Broker], operation: Operation, act: Act) -> Cost:
    for broker in brokers:
        broker.worst()
    for i in range(operation.times):
        act(i)
    # Work that no answer waits for also counts.
    time.sleep(SETTLING_S)
    found = [broker.worst() for broker in brokers]
    return Cost(
        1e6 * sum(one["process"] for one in found) / operation.times,
        sum(one["written"] for one in found) / operation.times,
        max(one["cpu"] for one in found),
        max(found, key=lambda one: float(one["cpu"]))["what"][:3],
    )


def grown(operation: Operation, small: Cost, large: Cost) -> list[str]:
    """Return the complaints about an operation; empty if its costs are as they should be."""
    wrong = []
    if operation.kind != BOUNDED:
        share = 10 if operation.kind == LINEAR else 1
        for what, before, after, noise in (
            ("CPU", small.cpu_us, large.cpu_us, CPU_NOISE_US),
            ("written", small.written_bytes, large.written_bytes, WRITTEN_NOISE_BYTES),
        ):
            if after / share > GROWTH_MAX * before and after - share * before > noise:
                wrong.append(f"{what} grows")
    if max(small.turn_ms, large.turn_ms) > STALL_MS:
        wrong.append("blocks the loop")
    return wrong


def main() -> int:
    """Print the table; return 1 if it has complaints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="operations with one of these words")
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the stores are made")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"{'operation':34}{'size':>8}{'cpu µs':>12}{'written':>12}{'turn ms':>9}")
    is_wrong = False
    for operation in TABLE:
        if options.only and not any(word in operation.name for word in options.only):
            continue
        costs = []
        for size in (operation.small, 10 * operation.small):
            cost = measure(operation, size, options.directory, options.tries)
            costs.append(cost)
            print(
                f"{operation.name:34}{size:8}{cost.cpu_us:12,.0f}{cost.written_bytes:12,.0f}"
                f"{cost.turn_ms:9.1f}",
                flush=True,
            )
        for fault in grown(operation, *costs):
            is_wrong = True
            print(f"    WRONG: {fault} ({operation.kind})")
            if fault == "blocks the loop":
                for took_ms, place in costs[-1].where:
                    print(f"        {took_ms:.1f}  {place}")
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
