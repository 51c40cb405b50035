"""The load generator's other protocols, against answers that the brokers themselves once gave.

Recorded from Redis 8.0.2, NATS 2.15.3, RabbitMQ 4.0.5 and Kafka 3.9.1; numbers that an answer takes
from its request are put in anew.
"""

import json
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence

import pytest

from benchmarks import load
from tests.support.hang import HANG_S

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

Answer = Callable[[int, bytes], bytes]
"""From the number of the send and its bytes."""

NATS_INFO = b'INFO {"server_id":"NCL4","version":"2.15.3","headers":true,"jetstream":true} \r\n'
NATS_GREETING = (
    b"PONG\r\n" + NATS_INFO,
    b"MSG _INBOX.rockhopperloadgenerator.0.new 1 60\r\n"
    b'{"type":"io.nats.jetstream.api.v1.stream_create_response"}  \r\n',
)
NATS_ERROR = b'{"error":{"code":503,"description":"insufficient resources"}}'
AMQP_GREETING = (
    b"\x01\x00\x00\x00\x00\x00\x1c\x00\x0a\x00\x0a\x00\x09\x00\x00\x00\x00\x00\x00\x00\x05PLAIN"
    b"\x00\x00\x00\x05en_US\xce",
    b"\x01\x00\x00\x00\x00\x00\x0c\x00\n\x00\x1e\x07\xff\x00\x02\x00\x00\x00<\xce",
    b"\x01\x00\x00\x00\x00\x00\x05\x00\n\x00)\x00\xce",
    b"\x01\x00\x01\x00\x00\x00\x08\x00\x14\x00\x0b\x00\x00\x00\x00\xce",
    b"\x01\x00\x01\x00\x00\x00\x17\x002\x00\x0b\nLoadTest-0\x00\x00\x00\x03\x00\x00\x00\x00\xce",
    b"\x01\x00\x01\x00\x00\x00\x04\x00U\x00\x0b\xce",
)
AMQP_PRECONDITION = (
    b"\x01\x00\x01\x00\x00\x00\x90\x00\x14\x00(\x01\x96\x85PRECONDITION_FAILED - inequivalent arg "
    b"'x-queue-type' for queue 'LoadTest-0' in vhost '/': received 'quorum' but current is "
    b"'classic'\x002\x00\n\xce"
)
KAFKA_PARTITION = "0000 %08x 00000001 00000001 00000001 00000001 00000001"
KAFKA_METADATA = bytes.fromhex(
    "000000ba 00000000 00000000 00000001 00000001 0009 3132372e302e302e31 000096e1 ffff"
    "0016 356130653133376531636563346431336234376538 32 00000001 00000001 0000 0008"
    "4c6f616454657374 00 00000004" + "".join(KAFKA_PARTITION % number for number in (1, 3, 2, 0))
)
KAFKA_PRODUCED = bytes.fromhex(
    "0000003e 00000000 00000001 0008 4c6f616454657374 00000001 00000000 0000 0000000000000003"
    "ffffffffffffffff 0000000000000000 00000000 ffff 00000000"
)
KAFKA_BATCH_HEAD = bytes.fromhex("0000000000000000 00000031 00000000 02") + bytes(40)
KAFKA_FETCHED = bytes.fromhex(
    "00000000 00000000 00000000 00000001 0008 4c6f616454657374 00000001 00000000 0000"
    "0000000000000060 0000000000000060 ffffffff 0000003d"
)
REDIS_ENTRY = b"*2\r\n$17\r\n1795981205201-%03d\r\n*2\r\n$1\r\nb\r\n$3\r\n*2\n\r\n"
"""Its value looks like the beginning of another."""
KAFKA_TOO_LARGE = bytes.fromhex(
    "0000003e 00000000 00000001 0008 4c6f616454657374 00000001 00000000 000a ffffffffffffffff"
    "ffffffffffffffff ffffffffffffffff 00000000 ffff 00000000"
)


def redis_stored(number: int, request: bytes) -> bytes:
    assert request.startswith(
        b"*5\r\n$4\r\nXADD\r\n$10\r\nLoadTest-0\r\n$1\r\n*\r\n$1\r\nb\r\n$128\r\n"
    )
    return b"$15\r\n1795981205201-%d\r\n" % (number % 10)


def nats_stored(number: int, request: bytes) -> bytes:
    inbox = b"_INBOX.rockhopperloadgenerator.0.%d" % number
    assert request.startswith(b"PUB LoadTest.0 %s 128\r\n" % inbox)
    return b'PING\r\nMSG %s 1 32\r\n{"stream":"LoadTest-0","seq":22}\r\n' % inbox


def amqp_stored(number: int, request: bytes) -> bytes:
    assert request.startswith(
        b"\x01\x00\x01\x00\x00\x00\x13\x00<\x00(\x00\x00\x00\nLoadTest-0\x01\xce"
    )
    return b"\x01\x00\x01\x00\x00\x00\r\x00<\x00P" + struct.pack(">Q", number + 1) + b"\x00\xce"


def kafka_stored(number: int, request: bytes) -> bytes:
    assert struct.unpack_from(">hhI", request, 4) == (0, 8, number)
    return KAFKA_PRODUCED[:4] + struct.pack(">I", number) + KAFKA_PRODUCED[8:]


def kafka_fetched(number: int, count: int = 32) -> bytes:
    """An answer of Fetch: 96 messages in the partition, of which one batch is here."""
    batch = KAFKA_BATCH_HEAD + struct.pack(">I", count)
    answer = KAFKA_FETCHED[8:] + batch
    return struct.pack(">II", 4 + len(answer), number) + answer


def kafka_batch_read(number: int, request: bytes) -> bytes:
    assert struct.unpack_from(">hhI", request, 4) == (1, 4, number)
    assert struct.unpack_from(">qi", request, len(request) - 12) == (number % 3 * 32, 1)
    return kafka_fetched(number)


def redis_entries(first: int, count: int = 32) -> bytes:
    return b"*%d\r\n" % count + b"".join(REDIS_ENTRY % (first + each) for each in range(count))


def redis_entries_read(number: int, request: bytes) -> bytes:
    after = (b"$1\r\n-", b"$18\r\n(1795981205201-031")[number % 2]
    assert (
        request
        == (
            b"*6\r\n$6\r\nXRANGE\r\n$10\r\nLoadTest-0\r\n%s\r\n$1\r\n+\r\n$5\r\nCOUNT\r\n$2\r\n32\r\n"
        )
        % after
    )
    return redis_entries(number % 2 * 32)


REDIS_IDS = (redis_entries(0), redis_entries(32), redis_entries(64, 5))
"""Of a stream with 69 entries: two whole requests."""


class FakeBroker:
    """Gives recorded answers to one connection."""

    def __init__(self, mode: str, greeting: Sequence[bytes], answer: Answer) -> None:
        self._mode = mode
        self._greeting = list(greeting)
        self._answer = answer
        self.sends = 0
        self.error: BaseException | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(HANG_S)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        try:
            with client:
                if self._mode == "nats":
                    client.sendall(NATS_INFO)
                while data := client.recv(1 << 20):
                    client.sendall(self._next(data))
        except (ConnectionError, BrokenPipeError):
            pass  # the generator has had enough
        except BaseException as error:
            self.error = error

    def _next(self, data: bytes) -> bytes:
        if self._greeting:
            return self._greeting.pop(0)
        request = data.removeprefix(b"PONG\r\n")
        if not request:
            return b""
        self.sends += 1
        return self._answer(self.sends - 1, request)

    def close(self) -> None:
        self._thread.join(HANG_S)
        self._listener.close()
        if self.error:
            raise self.error


def run(
    mode: str, greeting: Sequence[bytes], answer: Answer
) -> tuple["subprocess.CompletedProcess[str]", FakeBroker]:
    fake = FakeBroker(mode, greeting, answer)
    command = [str(load.build_loadgen()), "--mode", mode, "--port", str(fake.port)]
    command += ["--connections", "1", "--in-flight", "1", "--warm-up", "0", "--seconds", "0.2"]
    done = subprocess.run(
        [*command, "--drain", str(HANG_S)], capture_output=True, text=True, timeout=HANG_S
    )
    fake.close()
    return done, fake


@pytest.mark.parametrize(
    ("mode", "greeting", "answer"),
    [
        ("redis", (), redis_stored),
        ("nats", NATS_GREETING, nats_stored),
        ("amqp", AMQP_GREETING, amqp_stored),
        ("amqp-quorum", AMQP_GREETING, amqp_stored),
        ("kafka", (KAFKA_METADATA,), kafka_stored),
        ("kafka-batch", (KAFKA_METADATA,), kafka_stored),
        ("kafka-fetch", (KAFKA_METADATA, kafka_fetched(0)), kafka_batch_read),
        ("redis-range", REDIS_IDS, redis_entries_read),
    ],
)
def test_every_acknowledgement_is_matched_with_its_send(
    mode: str, greeting: Sequence[bytes], answer: Answer
) -> None:
    done, fake = run(mode, greeting, answer)
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    assert fake.sends > 0
    assert (result["unanswered"], result["mismatched"], result["short_pulls"]) == (0, 0, 0)
    messages_each = 32 if mode in ("kafka-batch", "kafka-fetch", "redis-range") else 1
    assert result["messages"] == messages_each * result["requests"]


@pytest.mark.parametrize(
    ("mode", "greeting", "refusal", "words"),
    [
        (
            "redis",
            (),
            b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
            "Redis refused: -WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        (
            "nats",
            NATS_GREETING,
            b"-ERR 'Maximum Payload Violation'\r\n",
            "NATS refused: -ERR 'Maximum Payload Violation'",
        ),
        (
            "nats",
            NATS_GREETING,
            b"MSG _INBOX.rockhopperloadgenerator.0.0 1 %d\r\n%s\r\n"
            % (len(NATS_ERROR), NATS_ERROR),
            "insufficient resources",
        ),
        (
            "nats",
            NATS_GREETING,
            b"HMSG _INBOX.rockhopperloadgenerator.0.0 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
            "NATS/1.0 503",
        ),
        (
            "amqp-quorum",
            AMQP_GREETING[:4],
            AMQP_PRECONDITION,
            "RabbitMQ refused: 406 PRECONDITION_FAILED - inequivalent arg 'x-queue-type'",
        ),
        (
            "amqp",
            AMQP_GREETING,
            b"\x01\x00\x01\x00\x00\x00\r\x00<\x00\x78\x00\x00\x00\x00\x00\x00\x00\x01\x00\xce",
            "RabbitMQ refused: method 60.120",
        ),
        ("kafka", (KAFKA_METADATA,), KAFKA_TOO_LARGE, "Kafka refused: error code 10"),
    ],
)
def test_what_is_no_acknowledgement_ends_the_run_with_the_brokers_words(
    mode: str, greeting: Sequence[bytes], refusal: bytes, words: str
) -> None:
    done, _ = run(mode, greeting, lambda number, request: refusal)
    assert done.returncode == 2
    assert not done.stdout
    assert words in done.stderr


def test_one_confirm_may_acknowledge_all_before_it() -> None:
    def every_other(number: int, request: bytes) -> bytes:
        # With two sends in flight both travel at once.
        tag = struct.pack(">Q", 2 * (number + 1))
        return b"\x01\x00\x01\x00\x00\x00\r\x00<\x00P" + tag + b"\x01\xce"

    fake = FakeBroker("amqp", AMQP_GREETING, every_other)
    command = [str(load.build_loadgen()), "--mode", "amqp", "--port", str(fake.port)]
    command += ["--connections", "1", "--in-flight", "2", "--warm-up", "0", "--seconds", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    fake.close()
    result = json.loads(done.stdout)
    assert (result["unanswered"], result["mismatched"]) == (0, 0)


@pytest.mark.parametrize(
    ("mode", "greeting", "answer"),
    [
        ("kafka-fetch", (KAFKA_METADATA, kafka_fetched(0)), kafka_fetched(0, 31)),
        ("redis-range", REDIS_IDS, redis_entries(0, 31)),
    ],
)
def test_a_read_of_too_few_messages_is_counted(
    mode: str, greeting: Sequence[bytes], answer: bytes
) -> None:
    numbered = {"kafka-fetch": lambda number: answer[:4] + struct.pack(">I", number) + answer[8:]}
    done, fake = run(mode, greeting, lambda number, _: numbered.get(mode, lambda _: answer)(number))
    assert done.returncode == 1
    assert json.loads(done.stdout)["short_pulls"] == fake.sends > 0


@pytest.mark.parametrize(
    ("mode", "greeting", "words"),
    [
        (
            "kafka-fetch",
            (KAFKA_METADATA, kafka_fetched(0).replace(b"\x60", b"\x03")),
            "holds 3 messages",
        ),
        ("redis-range", (redis_entries(0, 31),), "has fewer entries than the 32"),
        ("redis-range", (b"*1\r\n*2\r\n$-1\r\n*0\r\n",), "Redis refused"),
        ("redis-range", (b"-ERR unknown command\r\n",), "Redis refused: -ERR unknown command"),
    ],
)
def test_what_cannot_be_read_ends_the_run(mode: str, greeting: Sequence[bytes], words: str) -> None:
    done, _ = run(mode, greeting, lambda number, request: b"")
    assert done.returncode == 2
    assert words in done.stderr
