"""The official Java client, driven from Python: one JVM for all that a test session asks of it."""

import itertools
import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.interop import maven
from tests.interop.apache import PROJECT
from tests.interop.maven import QUICK_JVM
from tests.interop.processes import LineProcess, ProcessError
from tests.support.hang import HANG_S

ANSWER_TIMEOUT_S = HANG_S


class JavaClientError(Exception):
    """The Java client threw what the message says."""


class JavaClient:
    """Runs operations of interop.JavaClient, side by side if need be."""

    def __init__(
        self,
        directory: Path,
        heap_mb: int = 256,
        options: Sequence[str] = (),
        *,
        project: Path = PROJECT,
        main: str = "JavaClient",
    ) -> None:
        """*options* are the JVM's; *main*, of a Maven *project*, talks as JavaClient does."""
        directory.mkdir(parents=True, exist_ok=True)
        options = (*QUICK_JVM, *options)
        home = directory / "home"
        command = maven.command(project, main, home, heap_mb=heap_mb, options=options)
        self.process = LineProcess(command, directory / "client.log")
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def call(self, op: str, **arguments: object) -> Any:
        """Run operation *op* of interop.JavaClient and return its result.

        Raises:
            JavaClientError: the operation failed in Java.
        """
        return self.begin(op, **arguments).result(ANSWER_TIMEOUT_S)

    def begin(self, op: str, **arguments: object) -> "Future[Any]":
        """Start operation *op*; the future carries its result or JavaClientError."""
        future: Future[Any] = Future()
        with self._lock:
            number = next(self._ids)
            self._waiting[number] = future
            self.process.write_line(json.dumps({"id": number, "op": op, **arguments}))
        return future

    def until_assigned(self, group: str, topic: str, counts: list[int]) -> None:
        """Wait until the members of *group* that run here have *counts* queues of *topic*.

        They rebalance on threads of their own and tell nobody when they did.
        """
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while (found := self.call("assigned", group=group, topic=topic)) != counts:
            assert time.monotonic() < deadline, f"{group} shares {topic} as {found}, not {counts}"
            time.sleep(0.05)

    def close(self) -> None:
        """End the JVM."""
        self.process.kill()

    def _read(self) -> None:
        while True:
            try:
                answer = json.loads(self.process.read_line(timeout_s=3600))
            except ProcessError as error:
                for future in list(self._waiting.values()):
                    if not future.done():
                        future.set_exception(error)
                return
            future = self._waiting.pop(answer["id"])
            if "error" in answer:
                future.set_exception(JavaClientError(answer["error"]))
            else:
                future.set_result(answer.get("result"))
