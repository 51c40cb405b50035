"""Does with the official Python client what lines of JSON say; see programs.py.

It runs in a process of its own, whose path begins with the client's own directory: both ship
modules that must not meet those of the project.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from rocketmq.grpc_protocol import TransactionResolution
from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.consumer import ConsumeResult, MessageListener, PushConsumer, SimpleConsumer
from rocketmq.v5.model import FilterExpression, Message
from rocketmq.v5.producer import Producer, TransactionChecker

PATIENCE_S = 300.0
AWAIT_S = 5

Job = dict[str, Any]
held: dict[str, Any] = {}
"""Clients that live from one job to another."""


class Commits(TransactionChecker):  # type: ignore[misc]
    """Decides as the producer did or would have done."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def check(self, message: Any) -> Any:
        """Remember and decide."""
        self.asked.append(message.body.decode())
        if self.asked[-1] == "rolled-back":
            return TransactionResolution.ROLLBACK
        return TransactionResolution.COMMIT


class Fails(MessageListener):  # type: ignore[misc]
    """Fails whatever comes."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.attempts: list[int] = []
        self.is_enough = threading.Event()

    def consume(self, message: Any) -> Any:
        """Remember and fail."""
        self.attempts.append(message.delivery_attempt)
        if len(self.attempts) >= self._count:
            self.is_enough.set()
        return ConsumeResult.FAILURE


def configuration(job: Job) -> Any:
    """Where to connect, and as whom."""
    credentials = Credentials(job.get("accessKey") or "", job.get("secretKey") or "")
    return ClientConfiguration(job["endpoint"], credentials, request_timeout=5)


def producer(job: Job, checker: Commits | None = None) -> Any:
    """A started producer."""
    made = Producer(configuration(job), (job["topic"],), checker, tls_enable=job["tls"])
    made.startup()
    return made


def consumer(job: Job) -> Any:
    """A started simple consumer."""
    subscription = {job["topic"]: FilterExpression()}
    made = SimpleConsumer(
        configuration(job), job["group"], subscription, AWAIT_S, tls_enable=job["tls"]
    )
    made.startup()
    return made


def message(job: Job, body: str) -> Any:
    """A message for the job's topic."""
    made = Message()
    made.topic = job["topic"]
    made.body = body.encode()
    return made


def described(view: Any) -> dict[str, Any]:
    """What the test compares."""
    return {
        "body": view.body.decode(),
        "tag": view.tag or "",
        "keys": sorted(view.keys or ()),
        "properties": dict(view.properties or {}),
        "group": view.message_group or "",
        "attempt": view.delivery_attempt,
    }


def take(client: Any, count: int) -> list[dict[str, Any]]:
    """Receive and acknowledge so many."""
    taken: list[dict[str, Any]] = []
    deadline = time.monotonic() + PATIENCE_S
    last: Exception | None = None
    while len(taken) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {taken}; last: {last}")
        try:
            views = client.receive(16, 15) or ()
        except Exception as error:  # Apache's proxy fails a poll that overtakes the settings
            last = error
            time.sleep(0.2)
            continue
        for view in views:
            taken.append(described(view))
            client.ack(view)
    return taken


def take_one(client: Any, invisible_s: int) -> Any:
    """Receive one, unacknowledged."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if views := client.receive(1, invisible_s):
            return views[0]
    raise TimeoutError("nothing came")


def send(job: Job) -> Any:
    """Send messages with everything that they can carry."""
    sender = producer(job)
    for i in range(job["count"]):
        sent = message(job, f"normal-{i}")
        sent.tag = "a"
        for key in ("k1", "k2"):
            sent.keys = key  # adds
        sent.add_property("colour", "red")
        sender.send(sent)
    sender.shutdown()
    return []


def receive(job: Job) -> Any:
    """Receive what somebody sent."""
    receiver = consumer(job)
    taken = take(receiver, job["count"])
    receiver.shutdown()
    return taken


def normal(job: Job) -> Any:
    """Send and receive."""
    send(job)
    return receive(job)


def fifo(job: Job) -> Any:
    """One message group, in its order."""
    sender, receiver = producer(job), consumer(job)
    for i in range(job["count"]):
        sent = message(job, f"fifo-{i}")
        sent.message_group = "one"
        sender.send(sent)
    taken = take(receiver, job["count"])
    sender.shutdown()
    receiver.shutdown()
    return taken


def delay(job: Job) -> Any:
    """One delayed message that is recalled, and one that is not."""
    sender, receiver = producer(job), consumer(job)
    due_s = int(time.time()) + 3
    recalled, delayed = message(job, "recalled"), message(job, "delayed")
    recalled.delivery_timestamp = due_s
    delayed.delivery_timestamp = due_s + 1
    receipt = sender.send(recalled)
    sender.recall_message(job["topic"], receipt.recall_handle)
    sender.send(delayed)
    taken = take(receiver, 1)
    late_ms = (time.time() - due_s - 1) * 1000
    sender.shutdown()
    receiver.shutdown()
    return {"messages": taken, "lateMs": late_ms}


def transaction(job: Job) -> Any:
    """Roll back, commit, and forget."""
    checker = Commits()
    sender, receiver = producer(job, checker), consumer(job)
    for fate in ("rolled-back", "committed", "lost"):
        begun = sender.begin_transaction()
        sender.send(message(job, fate), begun)
        if fate == "committed":
            begun.commit()
        elif fate == "rolled-back":
            begun.rollback()
    taken: list[dict[str, Any]] = []
    while all(one["body"] != "lost" for one in taken):
        taken += take(receiver, 1)
    sender.shutdown()
    receiver.shutdown()
    return {"messages": taken, "asked": checker.asked}


def push(job: Job) -> Any:
    """A listener that fails; the consumer stays, so that the dead letter is written."""
    listener = Fails(job["count"])
    subscription = {job["topic"]: FilterExpression()}
    held["push"] = PushConsumer(
        configuration(job), job["group"], listener, subscription, tls_enable=job["tls"]
    )
    held["push"].startup()
    sender = producer(job)
    sender.send(message(job, "poison"))
    sender.shutdown()
    if not listener.is_enough.wait(PATIENCE_S):
        raise TimeoutError(f"deliveries: {listener.attempts}")
    return list(listener.attempts)


def invisible(job: Job) -> Any:
    """Make a message visible sooner than it was to be."""
    sender, receiver = producer(job), consumer(job)
    sender.send(message(job, "again"))
    first = take_one(receiver, 60)
    before = described(first)
    receiver.change_invisible_duration(first, 1)
    second = take_one(receiver, 60)
    receiver.ack(second)
    sender.shutdown()
    receiver.shutdown()
    return [before, described(second)]


def hold(job: Job) -> Any:
    """Clients that live through the end of the broker."""
    held["producer"], held["consumer"] = producer(job), consumer(job)
    held["producer"].send(message(job, "before"))
    return take(held["consumer"], 1)


def resume(job: Job) -> Any:
    """The same clients, afterwards."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            held["producer"].send(message(job, "after"))
            return take(held["consumer"], 1)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


OPERATIONS: dict[str, Callable[[Job], Any]] = {
    made.__name__: made
    for made in (
        send,
        receive,
        normal,
        fifo,
        delay,
        transaction,
        push,
        invisible,
        hold,
        resume,
    )
}


def main() -> None:
    """Answer each line with one."""
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = {"result": OPERATIONS[job["op"]](job)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    os._exit(0)  # its threads would go on


if __name__ == "__main__":
    main()
