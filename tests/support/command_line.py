"""`rockhopper` in this process: its commands run in a thread, beside the broker's event loop."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import structlog
from click.testing import CliRunner

from rockhopper.client.cli import main


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The objects that it printed with --json."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        """The cells of the printed lines."""
        return [line.split() for line in self.out.splitlines()]


class CommandLine:
    """Runs commands against one name server. Commands that handle signals need a process."""

    def __init__(self, nameserver: str) -> None:
        self._nameserver = nameserver

    async def run(self, *arguments: str) -> Ended:
        """Run a command to its end."""
        runner = CliRunner(env={"NAMESRV_ADDR": self._nameserver})
        logging = structlog.get_config()
        # In tests the broker logs to standard output, which the command captures for now.
        structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
        try:
            result = await asyncio.to_thread(runner.invoke, main, arguments)
        finally:
            structlog.configure(**logging)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(result.exit_code, result.stdout, result.stderr)
