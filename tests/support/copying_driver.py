"""The process of a copying query (copying_query.py), and how to kill it, or a part of it."""

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

from tests.support.daemon import ROOT
from tests.support.hang import HANG_S
from tests.support.process_tree import command_line, descendants


class Driver:
    """The process of the query, and its child processes."""

    def __init__(self, nameserver: str, checkpoint: Path, errors: Path, *flags: str) -> None:
        """Its standard error is appended to *errors*."""
        self._arguments = (nameserver, str(checkpoint), *flags)
        self._errors = errors
        self._process: asyncio.subprocess.Process | None = None
        self.lines: list[str] = []

    async def start(self, *flags: str) -> None:
        """Start it, and wait until the query runs."""
        with self._errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.support.copying_query"),
                *(*self._arguments, *flags),
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        await self._until("ready")

    async def _until(self, start: str) -> bool:
        """Read up to a line with this start; return False if the process ends before."""
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(HANG_S):
            while line := (await self._process.stdout.readline()).decode().strip():
                self.lines.append(line)
                if line.startswith(start):
                    return True
        return False

    async def batches(self, count: int) -> bool:
        """Wait for some batches; return False if the query failed before."""
        return all([await self._until("batch") for _ in range(count)])

    async def end(self) -> int:
        """Wait until it ends by itself."""
        assert self._process is not None
        await self._until("ended")
        return await self._process.wait()

    def kill(self, *, workers_only: bool, random_source: random.Random) -> None:
        """Send SIGKILL to all processes, or to one of Spark's Python processes."""
        assert self._process is not None
        tree = descendants(self._process.pid)
        if workers_only:
            workers = [pid for pid in tree if b"pyspark" in command_line(pid)]
            chosen = [random_source.choice(workers)] if workers else []
        else:
            chosen = [self._process.pid, *tree]
        for pid in chosen:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    async def gone(self) -> None:
        """Wait until the driver itself has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        while await self._process.stdout.readline():
            pass
        await self._process.wait()
