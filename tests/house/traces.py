"""Traced figures: the functions of ours that run for one request, and for a recovery.

A separate process starts a temporary broker, sends it raw requests and records every function of
ours that runs until the answer arrives (``python -m tests.house.traces``). A second process has
``ROCKHOPPER_PURE_PYTHON=1``, so it uses no compiled code; it traces no recovery.

    plain     the request as known clients write it, the code first in the header
    general   the same request with the code last: no fast path recognises it
    recovery  ``MessageStore.open`` of a store that was not closed

The ways to serve a request are the different sets of functions among: plain with compiled code,
plain without, and general without. Sets that agree by nine tenths count as one way. Each request is
sent three times before the trace, so caches are warm. Functions that did not run in each trace
belong to a timer of the broker, not to the request.
"""

import asyncio
import dataclasses
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Self
from unittest import mock

from rockhopper.broker import Broker
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.compiled import SWITCH

PACKAGE = f"{Path(__file__).parents[2] / 'rockhopper'}{os.sep}"
WARM_UP = 3
TIMES = 3
SAME_SHARE = 0.9
SEND, PULL = 310, 11
SEND_FIELDS = {
    "a": "producers",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\x017F0000010001000000000000000000A1\x02",
    "j": "0",
    "k": "false",
    "l": "0",
    "m": "false",
}
PULL_FIELDS = {
    "consumerGroup": "readers",
    "topic": "orders",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}
Traced = dict[str, list[str]]
"""Name of a request -> the functions that ran, as ``path function``."""


class Tracer:
    """Records the functions of ours that run in any thread, inside a ``with`` block."""

    def __init__(self) -> None:
        self._codes: set[tuple[str, str]] = set()

    def __enter__(self) -> Self:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # Code that runs only because a module is loaded does not belong to the request.
        is_ours = code.co_filename.startswith(PACKAGE) and code.co_name != "<module>"
        if event == "call" and is_ours:
            self._codes.add((code.co_filename.removeprefix(PACKAGE), code.co_qualname))

    @property
    def functions(self) -> set[str]:
        """The functions that ran so far."""
        return {f"{path} {name}" for path, name in self._codes}


def common(tracers: Sequence[Tracer]) -> list[str]:
    """Return the functions that all tracers recorded."""
    return sorted(set.intersection(*(tracer.functions for tracer in tracers)))


def files_of(functions: Sequence[str]) -> list[str]:
    """Return the files of these functions."""
    return sorted({function.partition(" ")[0] for function in functions})


def ways(sets: Sequence[Sequence[str]]) -> int:
    """Return how many of *sets* differ from all previous ones."""
    found: list[set[str]] = []
    for each in map(set, sets):
        if all(len(each & other) < SAME_SHARE * len(each | other) for other in found):
            found.append(each)
    return len(found)


def run(root: Path) -> tuple[Traced, Traced]:
    """Trace in two processes: with compiled code, and without."""
    command = [sys.executable, "-m", "tests.house.traces"]
    processes = [
        subprocess.Popen(
            command,
            cwd=root,
            env=os.environ | {SWITCH: switch},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for switch in ("0", "1")
    ]
    outputs = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        if process.returncode:
            raise RuntimeError(f"the broker could not be traced:\n{errors.decode()}")
    compiled, pure = (json.loads(output) for output, _ in outputs)
    return compiled, pure


def request(code: int, fields: Mapping[str, str], body: bytes, *, is_plain: bool) -> bytes:
    """Return a frame; one that is not plain has the code at the end of its header."""
    parts: dict[str, object] = {"extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1}
    parts = {"code": code} | parts if is_plain else parts | {"code": code}
    header = json.dumps(parts, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


async def trace_requests(broker: Broker) -> Traced:
    """Return the functions that each kind of request runs in *broker*."""
    found: Traced = {}
    host, _, port = broker.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    async def ask(frame: bytes) -> dict[str, object]:
        writer.write(frame)
        (length,) = struct.unpack(">I", await reader.readexactly(4))
        answer = await reader.readexactly(length)
        size = int.from_bytes(answer[1:4])
        header: dict[str, object] = json.loads(answer[4 : 4 + size])
        return header

    for name, code, fields, body in (
        ("send", SEND, SEND_FIELDS, b"hello"),
        ("pull", PULL, PULL_FIELDS, b""),
    ):
        for kind, is_plain in (("plain", True), ("general", False)):
            frame = request(code, fields, body, is_plain=is_plain)
            for _ in range(WARM_UP):
                await ask(frame)
            tracers = [Tracer() for _ in range(TIMES)]
            for tracer in tracers:
                with tracer:
                    answer = await ask(frame)
                if answer["code"] != 0:
                    raise RuntimeError(f"the {kind} {name} was refused: {answer}")
            found[f"{kind} {name}"] = common(tracers)
    writer.close()
    return found


async def trace_recovery(killed: Broker) -> Tracer:
    """Trace the functions that run while *killed* opens its store."""
    tracer = Tracer()
    opened = MessageStore.open

    def traced(*args: Any, **kwargs: Any) -> MessageStore:
        with tracer:
            return opened(*args, **kwargs)

    with mock.patch.object(MessageStore, "open", traced):
        async with killed:
            return tracer


async def trace() -> Traced:
    """Return all traces of this process."""
    with tempfile.TemporaryDirectory(prefix="rockhopper-traces-") as directory:
        roots = [Path(directory) / str(number) for number in range(TIMES + 1)]
        async with Broker.temporary() as temporary:
            config = temporary.config
        served, *killed = (
            dataclasses.replace(config, store=dataclasses.replace(config.store, root=root))
            for root in roots
        )
        async with Broker(served) as broker:
            found = await trace_requests(broker)
        if os.environ.get(SWITCH) == "1":
            return found
        # Which tables a killed broker has saved depends on timing. So this broker stopped cleanly,
        # and the file that marks a running broker is put back.
        for root in roots[1:]:
            shutil.copytree(roots[0], root)
            (root / "abort").touch()
        found["recovery"] = common([await trace_recovery(Broker(each)) for each in killed])
    return found


if __name__ == "__main__":
    json.dump(asyncio.run(trace()), sys.stdout)
