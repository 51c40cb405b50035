"""The loop's thread: calls that would wait for themselves, forks, the end of the interpreter."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rockhopper import ClientStateError, MessageQueue, ThreadedBroker
from rockhopper.client.sync import loop_thread
from rockhopper.client.sync.loop_thread import LogRecords, get_loop_thread
from rockhopper.sync import Admin, Consumer, Producer
from tests.support.hang import HANG_S

ROOT = Path(__file__).parents[4]

FORK = """
import os
from rockhopper import ClientStateError
from rockhopper.sync import Consumer, Producer

producer, unopened = Producer(), Producer()
print("parent", producer.send("orders", b"x").queue_offset >= 0, flush=True)
consumer = Consumer("billing", "orders").start()
child = os.fork()
if child == 0:
    print("child", producer.send("orders", b"y").queue_offset >= 0, flush=True)
    print("child", unopened.send("orders", b"z").queue_offset >= 0, flush=True)
    try:
        next(iter(consumer))
    except ClientStateError as error:
        print(error, flush=True)
    consumer.close()
    raise SystemExit(0)
print(os.waitpid(child, 0)[1], flush=True)
print("parent", producer.send("orders", b"w").queue_offset >= 0, len(next(iter(consumer)).body))
"""

EXIT = """
import atexit
from rockhopper.sync import Consumer, Producer

producer = Producer()
atexit.register(lambda: print(producer.send("orders", b"last").queue.topic))
producer.send("orders", b"first")
for message in Consumer("billing", "orders"):
    break
"""


def run(program: str, *, warnings: str = "error") -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, "-W", warnings, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_sends_over_connections_of_its_own(broker: ThreadedBroker) -> None:
    code, out, err = run(FORK)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == ["parent True", "child True", "child True"]
    assert "create a new client in the child process" in lines[3]
    assert lines[4:] == ["0", "parent True 1"]


def test_the_interpreter_ends_with_clients_open(broker: ThreadedBroker) -> None:
    assert run(EXIT) == (0, "orders\n", "")


def test_a_call_from_the_loop_itself_is_refused(broker: ThreadedBroker) -> None:
    with Producer(timeout_s=HANG_S) as producer:

        async def ask() -> None:
            producer.send("orders", b"x")

        with pytest.raises(ClientStateError, match="asynchronous clients"):
            get_loop_thread().call(ask())


async def exiting(queues: list[MessageQueue]) -> None:
    sys.exit(7)


def test_an_exit_in_a_callback_reaches_whoever_waits_and_the_loop_lives_on(
    broker: ThreadedBroker,
) -> None:
    with Producer(timeout_s=HANG_S) as producer:
        producer.send("orders", b"x")
        consumer = Consumer("billing", "orders", on_assigned=exiting)
        with pytest.raises(SystemExit) as ended:
            next(iter(consumer))
        assert ended.value.code == 7
        assert producer.send("orders", b"y").queue.topic == "orders"
        consumer.close()
    # A member that was left behind would take the messages of all tests that follow.
    with Admin() as admin:
        assert not admin.groups.state("billing").members


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> LogRecords:
    """Intercept the records of this thread, but only those that the test gives it."""
    made = LogRecords()
    monkeypatch.setattr(made, "watch", lambda: None)
    made.start(threading.get_ident())
    return made


def record(text: str) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "shop", "levelno": logging.ERROR, "msg": text})


def test_intercepted_records_are_logged_before_the_interpreter_ends(
    records: LogRecords, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(9):
        assert not records.filter(record(str(number)))
    records.drain(threading.TIMEOUT_MAX)
    assert caplog.messages == list("012345678")


def test_a_logging_handler_that_fails_keeps_no_other_record_from_being_logged(
    records: LogRecords, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[BaseException | None] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(error))
    failure = RuntimeError("the disk is full")
    handler = logging.Handler()

    def emit(given: logging.LogRecord) -> None:
        if given.msg == "bad":
            raise failure

    monkeypatch.setattr(handler, "emit", emit)
    monkeypatch.setattr(logging.getLogger("shop"), "handlers", [handler])
    for text in ("bad", "good"):
        records.filter(record(text))
    records.drain(threading.TIMEOUT_MAX)
    assert (shown, caplog.messages) == ([failure], ["good"])


def test_records_dropped_because_a_logging_handler_is_too_slow_are_counted_also_at_the_end(
    records: LogRecords, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_thread, "_RECORDS_MAX", 2)
    handler, is_logging, may_log = logging.Handler(), threading.Event(), threading.Event()

    def emit(_given: logging.LogRecord) -> None:
        is_logging.set()
        may_log.wait()

    monkeypatch.setattr(handler, "emit", emit)
    monkeypatch.setattr(logging.getLogger("shop"), "handlers", [handler])
    records.filter(record("0"))
    is_logging.wait()
    for text in "1234":
        records.filter(record(text))
    records.drain(0.0)
    may_log.set()
    records.drain(threading.TIMEOUT_MAX)
    report = "2 log records were dropped: a logging handler is too slow"
    assert caplog.messages == ["0", "1", "2", report]


LATE = """
import atexit, logging, logging.handlers
from threading import Thread

def late():
    print(producer.send("orders", b"late").queue.topic)

atexit.register(late)
from rockhopper.sync import Producer

class Shipping(logging.Handler):
    def emit(self, record):
        print(producer.send("orders", record.getMessage()).queue.topic)

producer = Producer()
producer.send("orders", b"first")
logging.getLogger().addHandler(logging.handlers.MemoryHandler(100, target=Shipping()))
logging.getLogger("shop").error("the last words")
"""


def test_functions_of_atexit_registered_before_the_import_and_logging_may_send(
    broker: ThreadedBroker,
) -> None:
    code, out, err = run(LATE, warnings="default")
    assert (code, out, "Error" in err) == (0, "orders\norders\n", False)


SHIPPED = """
import logging, socket, sys, threading
from rockhopper import ThreadedBroker
from rockhopper.sync import Consumer, Producer

class Shipping(logging.Handler):
    def emit(self, record):
        shipped.append(record.name)
        if "outage" in record.getMessage():
            held.set()
            seen.wait()  # with the lock of this handler held
        producer.send("logs", record.getMessage())

shipped, held, seen = [], threading.Event(), threading.Event()
producer = Producer()
producer.send("logs", b"first")
logging.basicConfig(level=logging.INFO, handlers=[Shipping()])
log = logging.getLogger("rockhopper.client.consumer")

async def logging_in_the_loop(queues):
    log.warning("a line of the client in the loop's thread")
    seen.set()

shipping = threading.Thread(target=lambda: logging.getLogger("shop").error("an outage"))
shipping.start()
held.wait()
with Consumer("billing", "orders", on_assigned=logging_in_the_loop) as consumer:
    shipping.join()
print(shipped[0])
"""


def test_a_logging_handler_may_send_while_the_client_logs(broker: ThreadedBroker) -> None:
    with Producer(timeout_s=HANG_S) as producer:
        producer.send("orders", b"x")
    code, out, err = run(SHIPPED, warnings="default")
    assert (code, out) == (0, "shop\n"), err
