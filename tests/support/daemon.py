"""The real daemon in a separate process, on free ports."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.support.hang import HANG_S

ROOT = Path(__file__).parents[2]
SMALL = ["--set", f"mappedFileSizeCommitLog={16 << 20}", "--set", "maxHashSlotNum=50000"]
SMALL += ["--set", "maxIndexNum=200000"]


class Daemon:
    """``python -m rockhopper.broker`` on *store*, in ``async with``; killed if necessary.

    It runs the checkout, or the version that *python* has installed.
    """

    def __init__(
        self,
        store: Path,
        *options: str,
        open_files: int | None = None,
        environment: Mapping[str, str] | None = None,
        python: Path | None = None,
    ) -> None:
        self._options = ("--store", str(store), *SMALL, *options)
        self._open_files = open_files
        self._environment = environment or {}
        self._python = python
        self.address = ""
        self.nameserver = ""
        self.brokers: list[str] = []
        self.lines: list[dict[str, Any]] = []

    async def __aenter__(self) -> Self:
        ports = ("--listen-port", "0", "--namesrv-port", "0", "--http-port", "-1")
        self._process = await self._spawn(*ports)
        async with asyncio.timeout(HANG_S):
            while not self.address:
                await self._read_line()
        self._reading = asyncio.create_task(self._read_on())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def _spawn(self, *ports: str) -> asyncio.subprocess.Process:
        # Set the limit only in the child: this process may have more open files than the limit.
        limit = f"ulimit -n {self._open_files}; " if self._open_files is not None else ""
        return await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            f'{limit}exec "$0" "$@"',
            self._python or sys.executable,
            "-m",
            "rockhopper.broker",
            *ports,
            *self._options,
            cwd=self._python.parent if self._python else ROOT,
            env={
                **{name: text for name, text in os.environ.items() if "ROCKHOPPER" not in name},
                **self._environment,
            },
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )

    async def fail(self, *ports: str) -> tuple[int, str]:
        """Run until it gives up; return the exit code and its standard error."""
        process = await self._spawn(*ports)
        async with asyncio.timeout(HANG_S):
            _, text = await process.communicate()
        assert process.returncode is not None
        return process.returncode, text.decode()

    async def _read_line(self) -> bool:
        assert self._process.stderr is not None
        text = await self._process.stderr.readline()
        if not text:
            if not self.address:
                raise AssertionError(f"the daemon ended: {self.lines}")
            return False
        try:
            line = json.loads(text)
        except ValueError:
            line = {"event": text.decode()}
        self.lines.append(line)
        if line["event"] == "serving" and "node" not in line:
            self.brokers = line.get("brokers", line.get("broker", "")).split()
            self.address, self.nameserver = self.brokers[0], line["nameserver"]
        return True

    async def _read_on(self) -> None:
        while await self._read_line():
            pass

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.returncode

    async def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.kill()
        await self._process.wait()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it with a signal; return its exit code."""
        self._process.send_signal(number)
        return await self._process.wait()

    async def ended(self) -> int:
        """Wait until it ends by itself; return its exit code."""
        async with asyncio.timeout(HANG_S):
            return await self._process.wait()
