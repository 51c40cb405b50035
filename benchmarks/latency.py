"""Latency from end to end, and what a consumer that catches up costs the producers.

    python -m benchmarks.latency [--only alone,set,catch-up] [--rates 1000,10000,100000]
                                 [--seconds 10] [--rounds 5] [--catch-up-gib 10] [--save FILE]

    alone      one broker under ASYNC_FLUSH
    set        the master of a set of three; a message is confirmed by both followers (needs etcd)
    catch-up   one broker at 10,000/s, without and with a consumer that reads that many GiB of
               older messages as fast as it can, from the disk if this process may drop caches

One process sends and consumes: messages of 128 B, with keys, over 8 connections, and 8 consumers
with a parked pull each. Each millisecond the messages that are due leave in one write for each
connection. Times count from the moment when a message was due, so a load that falls behind shows:

    late           until the load has sent it: a run where this is not far below the rest is void
    acknowledged   until its answer has arrived
    consumed       until the answer of the pull that has it has arrived

The broker (of a set: the master) has a core of its own, all else has the other one. The load spins
while it waits, because timers are late by more than a message takes. Each figure is the median of
the rounds.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import select
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import ha, servers, topics
from benchmarks.errors import BenchError
from benchmarks.load import HERE, cores
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.store.message_codec.batch import encode_batch

CONNECTIONS = 8
BODY_SIZE_BYTES = 128
TICK_NS = 1_000_000
WARM_UP_NS = 1_000_000_000
DRAIN_S = 30.0
PULLED_MAX = 32
PARKED_MS = 15_000
PARK_AND_FILTER = 2 | 4
"""The flags of a pull: it may be parked, and it has a subscription."""
FIRST_OPAQUE = 1_000_000_000
"""Opaques have ten digits, so all frames of a flow have the same size."""
LIVE_RATE = 10_000
HISTORY_BODY_BYTES = 1024
HISTORY_BATCH = 256
_HEAD = struct.Struct(">II")
_DUE = struct.Struct(">q")
_BODY_AT = 88
"""The position of the body in a record with IPv4 hosts (protocol/store/record_head.py)."""
_NS_PER_MS = 1e6
_OPAQUE = re.compile(rb'"opaque":(\d+)')
_OFFSET = re.compile(rb'"offset":"(\d+)"')
_NEXT_OFFSET = re.compile(rb'"nextBeginOffset":"(\d+)"')


class Connection:
    """A socket that never blocks."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._unsent = bytearray()
        self._unread = bytearray()

    def send(self, data: bytes = b"") -> None:
        """Send *data* behind what could not be sent before; keep what cannot be sent now."""
        self._unsent += data
        if self._unsent:
            with contextlib.suppress(BlockingIOError):
                del self._unsent[: self.socket.send(self._unsent)]

    def answers(self) -> Iterator[tuple[bytes, memoryview]]:
        """Yield the header and body of each answer that has arrived."""
        with contextlib.suppress(BlockingIOError):
            while data := self.socket.recv(1 << 20):
                self._unread += data
                if len(data) < 1 << 16:
                    break
        at, unread = 0, bytes(self._unread)
        view = memoryview(unread)
        while at + 8 <= len(unread):
            size, header_size = _HEAD.unpack_from(unread, at)
            header_size &= 0xFFFFFF
            if at + 4 + size > len(unread):
                break
            body_at = at + 8 + header_size
            yield unread[at + 8 : body_at], view[body_at : at + 4 + size]
            at += 4 + size
        del self._unread[:at]


def encode_request(code: int, opaque: int, ext: Mapping[str, object], body: bytes = b"") -> bytes:
    """Return a request as clients of other languages encode it."""
    fields = {key: str(value) for key, value in ext.items()}
    command = {"code": int(code), "extFields": fields, "flag": 0, "language": "JAVA"}
    header = json.dumps(
        command | {"opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": 479},
        separators=(",", ":"),
    ).encode()
    return _HEAD.pack(4 + len(header) + len(body), len(header)) + header + body


def find_number(pattern: "re.Pattern[bytes]", header: bytes) -> int:
    """Return the number that *pattern* finds in a JSON header."""
    found = pattern.search(header)
    if found is None:
        raise BenchError(f"an answer has no number: {header!r}")
    return int(found[1])


class Sends:
    """Sends of single messages to one queue, made from a template."""

    def __init__(self, topic: str, queue: int) -> None:
        values = ("load", topic, "TBW102", 4, queue, 0, "%013d", 0, "UNIQ_KEY\x01%032X", 0)
        ext = dict(zip("abcdefghijkm", (*values, "false", "false"), strict=True))
        frame = encode_request(RequestCode.SEND_MESSAGE_V2, FIRST_OPAQUE, ext)
        self._header = frame[_HEAD.size :].replace(b"%d" % FIRST_OPAQUE, b"%d")
        size = len(self._header % (0, 0, FIRST_OPAQUE))
        self._head = _HEAD.pack(4 + size + BODY_SIZE_BYTES, size)
        self._rest = b"x" * (BODY_SIZE_BYTES - _DUE.size)

    def encode(self, due_ns: int, opaque: int) -> bytes:
        """Return the send of a message that was due at *due_ns*."""
        header = self._header % (time.time_ns() // 1_000_000, opaque, opaque)
        return self._head + header + _DUE.pack(due_ns) + self._rest


class Consumer:
    """Pulls one queue from an offset on."""

    def __init__(self, port: int, topic: str, queue: int, offset: int = 0) -> None:
        self.connection = Connection(port)
        self.offset = offset
        self._ext: dict[str, object] = {
            "consumerGroup": topics.GROUP,
            "topic": topic,
            "queueId": queue,
            "maxMsgNums": PULLED_MAX,
            "sysFlag": PARK_AND_FILTER,
            "commitOffset": 0,
            "suspendTimeoutMillis": PARKED_MS,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
        }
        self.pull()

    def pull(self) -> None:
        """Send the next pull."""
        ext = self._ext | {"queueOffset": self.offset}
        self.connection.send(encode_request(RequestCode.PULL_MESSAGE, FIRST_OPAQUE, ext))

    def records(self) -> Iterator[memoryview]:
        """Yield the records of the pulls that were answered, and pull again."""
        for header, body in self.connection.answers():
            self.offset = find_number(_NEXT_OFFSET, header)
            self.pull()
            yield body


class Load:
    """Sends at a rate, and consumes; each message's times are kept after the warm-up."""

    def __init__(self, port: int, rate: int, topic: str = topics.WIDE_TOPIC) -> None:
        self._per_tick = rate / 1000
        self._senders = [Connection(port) for _ in range(CONNECTIONS)]
        self._sends = [Sends(topic, queue) for queue in range(CONNECTIONS)]
        ends = end_offsets(port, topic, CONNECTIONS)
        self._consumers = [Consumer(port, topic, queue, end) for queue, end in enumerate(ends)]
        self._due_ns = array("q")
        """When each message was due, by its number."""
        self._answered = self._consumed = 0
        self._counted_from_ns = 0
        self.acknowledged_ns, self.consumed_ns = array("q"), array("q")
        self.late_ns = array("q")
        """By how much the load itself was late: of each tick."""

    def run(self, goes_on: Callable[[int], bool]) -> None:
        """Send while *goes_on*, given the time since the warm-up, and wait for all messages.

        Raises:
            BenchError: a message was refused, or did not arrive.
        """
        sockets = [each.socket for each in self._senders]
        sockets += [each.connection.socket for each in self._consumers]
        next_ns = time.perf_counter_ns() + TICK_NS
        self._counted_from_ns = next_ns + WARM_UP_NS
        ticks = 0
        while goes_on(next_ns - self._counted_from_ns):
            self._receive(sockets)
            late_ns = time.perf_counter_ns() - next_ns
            if late_ns >= 0:
                ticks += 1
                self._send(next_ns, int(ticks * self._per_tick) - len(self._due_ns))
                next_ns += TICK_NS
                self.late_ns.append(late_ns)
        deadline_s = time.monotonic() + DRAIN_S
        while min(self._answered, self._consumed) < len(self._due_ns):
            self._receive(sockets)
            if time.monotonic() > deadline_s:
                raise BenchError(
                    f"of {len(self._due_ns)} messages {self._answered} were acknowledged and "
                    f"{self._consumed} consumed"
                )
        for each in sockets:
            each.close()

    def _send(self, due_ns: int, count: int) -> None:
        frames: list[list[bytes]] = [[] for _ in self._senders]
        for _ in range(count):
            number = len(self._due_ns)
            self._due_ns.append(due_ns)
            at = number % CONNECTIONS
            frames[at].append(self._sends[at].encode(due_ns, FIRST_OPAQUE + number))
        for connection, those in zip(self._senders, frames, strict=True):
            connection.send(b"".join(those))

    def _receive(self, sockets: Sequence[socket.socket]) -> None:
        ready = set(select.select(sockets, (), (), 0)[0])
        for connection in self._senders:
            if connection.socket in ready:
                self._count_answers(connection)
            else:
                connection.send()
        for consumer in self._consumers:
            if consumer.connection.socket in ready:
                self._count_records(consumer)

    def _count_answers(self, connection: Connection) -> None:
        for header, _ in connection.answers():
            if b'"code":0' not in header:
                raise BenchError(f"a send was refused: {header!r}")
            due_ns = self._due_ns[find_number(_OPAQUE, header) - FIRST_OPAQUE]
            self._answered += 1
            if due_ns >= self._counted_from_ns:
                self.acknowledged_ns.append(time.perf_counter_ns() - due_ns)

    def _count_records(self, consumer: Consumer) -> None:
        for records in consumer.records():
            now_ns, at = time.perf_counter_ns(), 0
            while at < len(records):
                (due_ns,) = _DUE.unpack_from(records, at + _BODY_AT)
                at += _HEAD.unpack_from(records, at)[0]
                self._consumed += 1
                if due_ns >= self._counted_from_ns:
                    self.consumed_ns.append(now_ns - due_ns)


def end_offsets(port: int, topic: str, queues: int) -> list[int]:
    """Return the offset behind the last message of each queue."""
    connection = Connection(port)
    connection.socket.setblocking(True)
    found = []
    for queue in range(queues):
        ext = {"topic": topic, "queueId": queue}
        connection.send(encode_request(RequestCode.GET_MAX_OFFSET, FIRST_OPAQUE, ext))
        while not (answers := list(connection.answers())):
            pass
        found.append(find_number(_OFFSET, answers[0][0]))
    connection.socket.close()
    return found


def describe_ms(times_ns: "array[int]") -> dict[str, float]:
    """Return the percentiles of times, in milliseconds."""
    ordered = sorted(times_ns)
    last = len(ordered) - 1
    if last < 0:
        raise BenchError("no message was measured")
    named = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    found = {name: ordered[round(last * part)] for name, part in named.items()}
    return {name: ns / _NS_PER_MS for name, ns in (found | {"max": ordered[-1]}).items()}


def measure(port: int, pid: int, rate: int, goes_on: Callable[[int], bool]) -> dict[str, float]:
    """Return the figures of one load."""
    load = Load(port, rate)
    began_s, used_s = time.monotonic(), cpu_s(pid)
    load.run(goes_on)
    used_s = cpu_s(pid) - used_s
    figures = {
        "messages": len(load.consumed_ns),
        "broker cpu": used_s / (time.monotonic() - began_s),
    }
    times = {"late": load.late_ns, "acknowledged": load.acknowledged_ns}
    for what, times_ns in (times | {"consumed": load.consumed_ns}).items():
        figures |= {f"{what} {name} ms": ms for name, ms in describe_ms(times_ns).items()}
    return figures


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that all threads of a process have used."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def for_seconds(seconds: float) -> Callable[[int], bool]:
    """Return a condition that holds for that long after the warm-up."""
    return lambda since_ns: since_ns < seconds * 1e9


class Measures:
    """The parts of the benchmark; each yields a name, and its figures."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._rates = [int(rate) for rate in options.rates.split(",")]

    def alone(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Measure one broker."""
        for rate in self._rates:
            with servers.rockhopper({}) as broker:
                yield f"alone, {rate:,}/s", self._at(broker.port, broker.pid, rate)

    def set(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Measure a set of three."""
        etcd = shutil.which("etcd", path=f"{os.environ.get('PATH')}:{HERE.parent}/build/etcd")
        if etcd is None:
            print("no set is measured: etcd is not installed (apt-get install etcd-server)")
            return
        for rate in self._rates:
            with ha.a_set(3, etcd) as replicas:
                master = asyncio.run(replicas.master(3))
                ha.place(replicas, master)
                topics.prepare(master.port)
                yield f"set of three, {rate:,}/s", self._at(master.port, master.pid, rate)

    def _at(self, port: int, pid: int, rate: int) -> dict[str, float]:
        return measure(port, pid, rate, for_seconds(self._options.seconds))

    def catch_up(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Measure a broker while a consumer reads old messages."""
        size_bytes = int(self._options.catch_up_gib * (1 << 30))
        with servers.rockhopper({}) as broker:
            fill(broker.port, size_bytes)
            yield f"{LIVE_RATE:,}/s alone", self._at(broker.port, broker.pid, LIVE_RATE)
            where = "from the disk" if drop_caches() else "from memory"
            began_s = time.monotonic()
            command = [sys.executable, "-m", "benchmarks.latency", "--read", str(broker.port)]
            with subprocess.Popen(command, cwd=HERE.parent) as reader:
                figures = measure(
                    broker.port, broker.pid, LIVE_RATE, lambda _: reader.poll() is None
                )
            if reader.returncode:
                raise BenchError("the consumer that catches up failed")
            figures["catch-up MB/s"] = size_bytes / 1e6 / (time.monotonic() - began_s)
            yield f"{LIVE_RATE:,}/s while old messages are read {where}", figures


def fill(port: int, size_bytes: int) -> None:
    """Store messages of 1 KiB in batches until their records have this size."""
    body = encode_batch([(0, b"x" * HISTORY_BODY_BYTES, b"")] * HISTORY_BATCH)
    values = ("load", topics.TOPIC, "TBW102", 4, "%d", 0, 0, 0, "", 0, "false", "true")
    frames = []
    for queue in range(topics.QUEUE_COUNT):
        ext = dict(zip("abcdefghijkm", values, strict=True)) | {"e": queue}
        frames.append(encode_request(RequestCode.SEND_BATCH_MESSAGE, FIRST_OPAQUE, ext, body))
    connection = Connection(port)
    connection.socket.setblocking(True)
    for number in range(size_bytes // (HISTORY_BODY_BYTES * HISTORY_BATCH)):
        connection.socket.sendall(frames[number % len(frames)])
        answers: list[tuple[bytes, memoryview]] = []
        while not answers:
            answers = list(connection.answers())
        if b'"code":0' not in answers[0][0]:
            raise BenchError(f"a batch was refused: {answers[0][0]!r}")
    connection.socket.close()


def read(port: int) -> None:
    """Read all messages of the history once, with a pull in flight for each queue."""
    ends = end_offsets(port, topics.TOPIC, topics.QUEUE_COUNT)
    left = {queue: Consumer(port, topics.TOPIC, queue) for queue, end in enumerate(ends) if end > 0}
    while left:
        select.select([each.connection.socket for each in left.values()], (), ())
        for queue, consumer in list(left.items()):
            for _ in consumer.records():
                pass
            if consumer.offset >= ends[queue]:
                left.pop(queue).connection.socket.close()


def drop_caches() -> bool:
    """Write everything, and drop the page cache; return False without the permission."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1\n")
    except OSError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="alone,set,catch-up", help="some of %(default)s")
    parser.add_argument("--rates", default="1000,10000,100000", help="messages/s; %(default)s")
    parser.add_argument("--seconds", type=float, default=10.0, help="%(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="%(default)s")
    parser.add_argument("--catch-up-gib", type=float, default=10.0, help="%(default)s")
    parser.add_argument("--save", type=Path, help="a file for all figures, as JSON")
    parser.add_argument("--read", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.save is not None:
        options.save.parent.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, {cores()[1]})
    if options.read is not None:
        read(options.read)
        return 0
    measures = Measures(options)
    found: dict[str, list[dict[str, float]]] = {}
    for number in range(options.rounds):
        for part in options.only.split(","):
            for name, figures in getattr(measures, part.replace("-", "_"))():
                found.setdefault(name, []).append(figures)
                print(f"round {number + 1}: {_format(name, figures)}", flush=True)
    print(f"medians of {options.rounds}:")
    for name, rounds in found.items():
        medians = {each: statistics.median(one[each] for one in rounds) for each in rounds[0]}
        print(_format(name, medians))
    if options.save is not None:
        options.save.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _format(name: str, figures: Mapping[str, Any]) -> str:
    return f"{name}: " + ", ".join(f"{what} {value:,.2f}" for what, value in figures.items())


if __name__ == "__main__":
    sys.exit(main())
