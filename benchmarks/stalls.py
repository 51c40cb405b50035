"""Operations that block the broker's event loop, and for how long.

    python -m benchmarks.stalls [--only WORD …] [--tries 3] [--directory /tmp]

Each case is one request to a large broker, or a period of its life. The output is the longest turn
of the loop in it, as benchmarks/watched_broker.py measures it. A case is judged by the processor
time of the turn; the wall time is shown beside it. The best of several tries counts. The limit is
20 ms, and 5 ms for a pause of the garbage collector.
"""

import argparse
import contextlib
import json
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.errors import BenchError
from benchmarks.load import HERE
from benchmarks.servers import free_ports
from rockhopper.protocol.codes import RequestCode as Code

STALL_MS, PAUSE_MS = 20.0, 5.0
TIMEOUT_S = 300
LIST_LENGTH = 4000
PIPELINED = 128
SETTLING_S = 0.2
SAVING_S = 6.0
SAMPLES_S = 11.0
"""In this time all the broker's tasks of every 10 s run once."""
TOPICS, MANY_TOPICS, GROUPS, OFFSETS = 20_000, 100_000, 20_000, 100_000
WIDE, DOOMED, CLIENTS, COMERS, SUBSCRIPTIONS = 65_536, 2_000, 10_000, 1_000, 7_000
READERS, FILTERED = 20, 400
# Small files: a queue with one message has one file.
SETTINGS = {"mappedFileSizeCommitLog": 1 << 28, "mappedFileSizeConsumeQueue": 20_000}
LETTERS = [chr(n) for n in range(33, 127) if chr(n) not in '"\\']
KEYS = [*LETTERS, *(a + b for a in LETTERS for b in LETTERS)]
KEYS = (KEYS + [f"{a}-" for a in KEYS[len(LETTERS) :]])[:10_000]


class Client:
    """A connection with a blocking socket."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._file = self._socket.makefile("rb")

    def ask(self, code: int, ext: Mapping[str, object], body: bytes = b"") -> bytes:
        """Return the body of the answer. Raise BenchError if it is a refusal."""
        self._socket.sendall(frame(code, ext, body))
        return self._answer(code)

    def begin(self, code: int, ext: Mapping[str, object]) -> None:
        """Send a request whose answer ``end`` receives."""
        self._socket.sendall(frame(code, ext))

    def end(self) -> None:
        """Receive that answer, whatever it is."""
        with contextlib.suppress(BenchError):
            self._answer(0)

    def ask_all(self, requests: Iterable[tuple[int, Mapping[str, object], bytes]]) -> None:
        """Send requests with as many in flight as a busy client has."""
        waiting: list[int] = []
        for request in requests:
            waiting.append(request[0])
            self._socket.sendall(frame(*request))
            if len(waiting) == PIPELINED:
                for code in waiting:
                    self._answer(code)
                waiting.clear()
        for code in waiting:
            self._answer(code)

    def send(self, code: int, ext: Mapping[str, object], body: bytes = b"") -> None:
        """Send a request without waiting for its answer."""
        self._socket.sendall(frame(code, ext, body))

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """Return the header and the body of the next answer."""
        header: dict[str, Any] = {"flag": 0}
        while not header["flag"] & 1:
            size, header_size = struct.unpack(">II", self._file.read(8))
            header = json.loads(self._file.read(header_size & 0xFFFFFF))
            body = self._file.read(size - 4 - (header_size & 0xFFFFFF))
        return header, body

    def _answer(self, code: int) -> bytes:
        header, body = self.receive()
        if header["code"] != 0:
            raise BenchError(f"{code} is refused: {header}")
        return body


def frame(code: int, ext: Mapping[str, object], body: bytes = b"") -> bytes:
    """Return a request as a foreign client encodes it."""
    command = {"code": code, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": 1}
    header = json.dumps(command | {"version": 479}).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def send(
    topic: str, queue: int, properties: str = "", body: bytes = b"x"
) -> tuple[int, Any, bytes]:
    """Return a send of one message."""
    values = ("t", topic, "TBW102", 4, queue, 0, 1, 0, properties, 0, "false", "false")
    ext = dict(zip("abcdefghijkm", values, strict=True))
    return Code.SEND_MESSAGE_V2, ext, body


class Broker:
    """A watched broker in its own process."""

    def __init__(self, store: Path, settings: Mapping[str, object] = SETTINGS) -> None:
        self.port, self.names_port, self._http_port = free_ports(3)
        settings = {
            "storePathRootDir": store,
            "bindAddress": "127.0.0.1",
            "listenPort": self.port,
            "namesrvPort": self.names_port,
            "httpPort": self._http_port,
            **settings,
        }
        options = [f"--set={key}={value}" for key, value in settings.items()]
        command = [sys.executable, "-m", "benchmarks.watched_broker", "--log-level=error", *options]
        self.process = subprocess.Popen(
            command, cwd=HERE.parent, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        began_s = time.perf_counter()
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                self.client = Client(self.port)
                break
            if self.process.poll() is not None or time.perf_counter() - began_s > TIMEOUT_S:
                raise BenchError("The broker did not start.")
            time.sleep(0.001)

    def worst(self) -> dict[str, Any]:
        """Return the longest turns since the last call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def scrape(self) -> None:
        """Read the page of metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/metrics") as answer:
            answer.read()

    def make_topics(self, topics: Iterable[tuple[str, int]]) -> None:
        """Create topics with these numbers of queues."""
        configs = [
            {"topicName": name, "readQueueNums": count, "writeQueueNums": count, "perm": 6}
            for name, count in topics
        ]
        for start in range(0, len(configs), LIST_LENGTH):
            body = json.dumps({"topicConfigList": configs[start : start + LIST_LENGTH]}).encode()
            self.client.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait()


class Report:
    """The table that is printed, line by line."""

    def __init__(self, only: list[str], tries: int) -> None:
        self._only = only
        self.tries = tries
        print(f"{'case':52}{'cpu':>8}{'own':>8}{'wall':>8}{'gc':>8}  ms", flush=True)

    def wants(self, *names: str) -> bool:
        """Return whether one of a broker's cases is selected."""
        return any(not self._only or any(word in name for word in self._only) for name in names)

    def measure(
        self, broker: Broker, name: str, *steps: Callable[[], object], tries: int | None = None
    ) -> None:
        """Print the longest turn of *broker* during *steps*."""
        if not self.wants(name):
            return
        found = []
        for _ in range(tries or self.tries):
            time.sleep(SETTLING_S)
            broker.worst()
            for do in steps:
                do()
            time.sleep(SETTLING_S)
            found.append(broker.worst())
        best = min(found, key=lambda one: float(one["cpu"]))
        figures = "".join(f"{best[key]:8.1f}" for key in ("cpu", "own", "wall", "gc"))
        verdict = "TOO LONG" if best["cpu"] > STALL_MS or best["gc"] > PAUSE_MS else ""
        print(f"{name:52}{figures}  {verdict}", flush=True)
        if verdict or best["own"] > STALL_MS:
            for took_ms, what in best["what"][:5]:
                print(f"{took_ms:60.1f}  {what}", flush=True)


def tables(report: Report, broker: Broker) -> None:
    """Measure requests for large tables."""
    client = broker.client
    broker.make_topics((f"topic-{n}", 1) for n in range(TOPICS))
    for start in range(0, GROUPS, LIST_LENGTH):
        groups = [{"groupName": f"group-{start + n}"} for n in range(LIST_LENGTH)]
        body = json.dumps({"groupConfigList": groups}).encode()
        client.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, body)
    for code, name in (
        (Code.GET_ALL_TOPIC_CONFIG, f"all {TOPICS} topics (21)"),
        (Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, f"all {GROUPS} groups (201)"),
        (Code.GET_BROKER_RUNTIME_INFO, "runtime information (28)"),
        (Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, "system topics (305)"),
    ):
        report.measure(broker, name, partial(client.ask, code, {}))
    ext = {"topic": "topic-1", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1}
    ext |= {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    made = (ext | {"topic": f"new-{n}"} for n in range(9))
    report.measure(
        broker,
        "a topic is made (17)",
        lambda: client.ask(Code.UPDATE_AND_CREATE_TOPIC, next(made)),
    )
    doomed = ({"topic": f"new-{n}"} for n in range(9))
    report.measure(
        broker,
        "a topic is deleted (215)",
        lambda: client.ask(Code.DELETE_TOPIC_IN_BROKER, next(doomed)),
    )
    names = Client(broker.names_port)
    report.measure(
        broker,
        "all names of the name server (206)",
        lambda: names.ask(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
    )
    report.measure(
        broker,
        "a route (105)",
        lambda: names.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "topic-7"}),
    )
    routes = [(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": f"topic-{n}"}, b"") for n in range(TOPICS)]
    report.measure(broker, f"{TOPICS} routes, pipelined", lambda: names.ask_all(routes), tries=1)
    commits = [
        (
            Code.UPDATE_CONSUMER_OFFSET,
            {
                "consumerGroup": f"group-{n % 50}",
                "topic": f"topic-{n // 50}",
                "queueId": 0,
                "commitOffset": 0,
            },
            b"",
        )
        for n in range(OFFSETS)
    ]
    report.measure(
        broker,
        f"{OFFSETS} offsets committed and saved",
        lambda: client.ask_all(commits),
        lambda: time.sleep(SAVING_S),
        tries=1,
    )
    report.measure(
        broker, f"all {OFFSETS} offsets (43)", lambda: client.ask(Code.GET_ALL_CONSUMER_OFFSET, {})
    )
    report.measure(broker, "topics of a group (343)", lambda: client.ask(343, {"group": "group-1"}))
    report.measure(broker, "groups of a topic (300)", lambda: client.ask(300, {"topic": "topic-1"}))
    report.measure(
        broker,
        "consumption of all groups (317)",
        lambda: client.ask(Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
    )
    report.measure(
        broker,
        "group of 2,000 offsets: stats (208)",
        lambda: client.ask(Code.GET_CONSUME_STATS, {"consumerGroup": "group-1"}),
    )
    left = ({"groupName": f"group-{n}", "cleanOffset": "true"} for n in range(2, 20))
    report.measure(
        broker,
        "group of 2,000 offsets: deleted (207)",
        lambda: client.ask(Code.DELETE_SUBSCRIPTIONGROUP, next(left)),
    )
    beat = {
        "clientID": "c",
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": "beating",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [
                    {"topic": f"t{n}", "subString": "*"} for n in range(SUBSCRIPTIONS)
                ],
            }
        ],
    }
    body = json.dumps(beat, separators=(",", ":")).encode()
    report.measure(
        broker,
        f"a heartbeat of {SUBSCRIPTIONS} subscriptions (34)",
        lambda: client.ask(Code.HEART_BEAT, {}, body),
    )
    report.measure(
        broker,
        "connections of that group (203)",
        lambda: client.ask(203, {"consumerGroup": "beating"}),
    )
    report.measure(broker, "metrics scraped", broker.scrape)
    report.measure(broker, "11 s of nothing", lambda: time.sleep(SAMPLES_S), tries=1)


def queues(report: Report, broker: Broker) -> None:
    """Measure requests for wide topics with messages, and for messages with many keys."""
    client = broker.client
    properties = f"KEYS\x01{' '.join(KEYS)}\x02"
    client.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"group"}')
    client.ask(*send("keyed", 0))
    report.measure(
        broker, "a message of 10,000 keys", lambda: client.ask(*send("keyed", 0, properties))
    )
    batch = (
        struct.pack(">iiiii", 22 + len(properties) + 1, 0, 0, 0, 1)
        + b"x"
        + struct.pack(">h", len(properties))
        + properties.encode()
    )
    ext = send("keyed", 0)[1] | {"m": "true"}
    many = "".join(f"k{n}\x01v\x02" for n in range(4000)).encode()
    long = struct.pack(">iiiii", 23 + len(many), 0, 0, 0, 1) + b"x"
    long += struct.pack(">h", len(many)) + many
    report.measure(
        broker,
        "a batch of 100 messages of 4,000 properties",
        lambda: client.ask(Code.SEND_BATCH_MESSAGE, ext, long * 100),
    )
    report.measure(
        broker,
        "a batch of 100 messages of 10,000 keys",
        lambda: client.ask(Code.SEND_BATCH_MESSAGE, ext, batch * 100),
    )
    query = {
        "topic": "keyed",
        "key": KEYS[77],
        "maxNum": 64,
        "beginTimestamp": 0,
        "endTimestamp": 2**62,
    }
    report.measure(
        broker, "a query by one of the keys (12)", lambda: client.ask(Code.QUERY_MESSAGE, query)
    )
    names = [f"doomed{n}" for n in range(report.tries)]
    purged, deleted = iter(names), iter(names)
    for name in names:
        broker.make_topics([(name, DOOMED)])
        client.ask_all(send(name, queue) for queue in range(DOOMED))
    report.measure(
        broker,
        f"a topic of {DOOMED} queues: stats (202)",
        lambda: client.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "doomed0"}),
    )
    report.measure(
        broker,
        f"a topic of {DOOMED} queues: purged (70006)",
        lambda: client.ask(Code.PURGE_TOPIC, {"topic": next(purged)}),
    )
    report.measure(
        broker,
        f"a topic of {DOOMED} queues: deleted (215)",
        lambda: client.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": next(deleted)}),
    )
    cases = (
        f"a topic of {WIDE} queues: made, sent to",
        f"{WIDE} queues: stats (202)",
        f"{WIDE} queues: group's stats (208)",
    )
    if not report.wants(*cases):
        return
    report.measure(
        broker,
        cases[0],
        lambda: broker.make_topics([("wide", WIDE)]),
        lambda: client.ask_all(send("wide", queue) for queue in range(WIDE)),
        tries=1,
    )
    client.ask_all(
        (
            Code.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": "group", "topic": "wide", "queueId": n, "commitOffset": 1},
            b"",
        )
        for n in range(WIDE)
    )
    report.measure(
        broker, cases[1], lambda: client.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "wide"})
    )
    report.measure(
        broker,
        cases[2],
        lambda: client.ask(Code.GET_CONSUME_STATS, {"consumerGroup": "group", "topic": "wide"}),
    )
    report.measure(broker, "metrics scraped", broker.scrape)
    report.measure(broker, "11 s of nothing", lambda: time.sleep(SAMPLES_S), tries=1)
    report.measure(
        broker,
        f"{WIDE} queues: deleted (215)",
        lambda: client.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "wide"}),
        tries=1,
    )


def crowds(report: Report, broker: Broker) -> None:
    """Measure many topics that were sent to, and many clients."""
    client = broker.client
    report.measure(
        broker,
        f"{MANY_TOPICS} topics made",
        lambda: broker.make_topics((f"topic-{n}", 1) for n in range(MANY_TOPICS)),
        tries=1,
    )
    report.measure(
        broker,
        "and a message sent to each",
        lambda: client.ask_all(send(f"topic-{n}", 0) for n in range(MANY_TOPICS)),
        tries=1,
    )

    def come() -> list[socket.socket]:
        comers = []
        for _ in range(COMERS):
            comer = socket.socket()
            comer.setblocking(False)
            comer.connect_ex(("127.0.0.1", broker.port))
            comers.append(comer)
        return comers

    def answered(comers: list[socket.socket]) -> None:
        for comer in comers:
            comer.settimeout(TIMEOUT_S)
            comer.sendall(frame(Code.GET_MAX_OFFSET, {"topic": "topic-1", "queueId": 0}))
        for comer in comers:
            comer.recv(1 << 16)

    kept: list[socket.socket] = []
    for n in range(CLIENTS // COMERS):
        began_s = time.perf_counter()
        report.measure(
            broker, f"{COMERS} clients come at once ({n})", lambda: kept.extend(come()), tries=1
        )
        answered(kept[-COMERS:])
        print(f"    {time.perf_counter() - began_s:.2f} s", flush=True)
    report.measure(broker, f"{CLIENTS} clients each ask", lambda: answered(kept))
    report.measure(broker, "22 s of nothing", lambda: time.sleep(2 * SAMPLES_S), tries=1)
    report.measure(
        broker,
        f"{CLIENTS} sends to as many topics",
        lambda: client.ask_all(send(f"topic-{n}", 0) for n in range(CLIENTS)),
    )
    report.measure(broker, "metrics scraped", broker.scrape)
    report.measure(
        broker, "runtime information (28)", lambda: client.ask(Code.GET_BROKER_RUNTIME_INFO, {})
    )
    report.measure(
        broker,
        f"{CLIENTS} clients go at once",
        lambda: list(map(socket.socket.close, kept)),
        tries=1,
    )


def readers(report: Report, broker: Broker) -> None:
    """Measure requests of readers with slow filters."""
    broker.make_topics([("filtered", 4)])
    long = ("a" * 29_000, "0" * 29_000)
    broker.client.ask_all(
        send("filtered", n % 4, f"text\x01{long[0]}\x02" if n % 8 < 4 else f"n\x01{long[1]}\x02")
        for n in range(FILTERED)
    )
    wanted = "a" * 50 + "b" + "a" * 45
    expressions = {
        "CONTAINS": " OR ".join([f"text CONTAINS '{wanted}'"] * 100),
        "numbers": " OR ".join(["n > 1"] * 700),
        "texts": " OR ".join(f"text = 'value {n}'" for n in range(700)),
    }
    clients = [Client(broker.port) for _ in range(READERS)]
    names = iter(range(1 << 20))

    def ask(code: int, ext: Mapping[str, object], key: str, expression: str) -> None:
        for client in clients:
            # Each has its own expression, so that no verdict is cached.
            client.begin(code, {**ext, key: f"{expression} OR other = '{next(names)}'"})
        for client in clients:
            client.end()

    for name, expression in expressions.items():
        pull = {"consumerGroup": "g", "topic": "filtered", "queueId": 0, "queueOffset": 0}
        pull |= {"maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0}
        pull |= {"expressionType": "SQL92", "subVersion": 0}
        report.measure(
            broker,
            f"{READERS} pulls with SQL92 over long properties: {name}",
            partial(ask, Code.PULL_MESSAGE, pull, "subscription", expression),
        )
        pop = {"topic": "filtered", "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000}
        pop |= {"pollTime": 0, "bornTime": 0, "initMode": 0, "expType": "SQL92", "order": "false"}
        report.measure(
            broker,
            f"{READERS} pops with SQL92 over long properties: {name}",
            partial(
                ask, Code.POP_MESSAGE, pop | {"consumerGroup": f"pop-{name}"}, "exp", expression
            ),
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="cases that have one of these words")
    parser.add_argument("--worlds", nargs="*", default=["tables", "queues", "crowds", "readers"])
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the stores are made")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    report = Report(options.only, options.tries)
    for world in (tables, queues, crowds, readers):
        if world.__name__ in options.worlds:
            with tempfile.TemporaryDirectory(prefix="stalls-", dir=options.directory) as store:
                broker = Broker(Path(store))
                try:
                    world(report, broker)
                finally:
                    broker.stop()


if __name__ == "__main__":
    main()
