"""Stores for the store's tools, and their commands run in this process."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import click
import structlog
from click.testing import CliRunner

from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.tools.checking import check
from rockhopper.broker.tools.findings import Findings
from rockhopper.broker.tools.repair.commands import store as store_command
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.protocol.names import SCHEDULE_TOPIC
from tests.support import open_stores
from tests.support.peers import Clock

CONFIG_TEXT = "maxHashSlotNum=16\nmaxIndexNum=400\nmappedFileSizeCommitLog=4096\n"


def fill(store: MessageStore, clock: Clock, count: int, first: int = 0) -> None:
    """Put messages of several kinds: keys, tags, light queues, delayed ones, batches."""
    for number in range(first, first + count):
        clock.advance(40)
        properties = (
            f"UNIQ_KEY\x01UK{number:06d}\x02KEYS\x01k{number} kk\x02TAGS\x01t{number % 3}\x02"
        )
        topic, queue_id = f"Topic{number % 2}", number % 3
        if number % 10 == 5:
            topic, queue_id = SCHEDULE_TOPIC, 0
            properties += "DELAY\x011\x02REAL_TOPIC\x01Topic0\x02REAL_QID\x010\x02"
        open_stores.put(store, b"body %d" % number, topic, queue_id, properties)


def write(root: Path, count: int = 60, clock: Clock | None = None) -> Path:
    """Write a store that was stopped cleanly."""
    clock = clock or Clock()
    store = open_stores.open_store(root, clock)
    fill(store, clock, count)
    open_stores.close(store)
    return root


def checked(root: Path, config: Path | None = None) -> Findings:
    """Return the findings of a check."""
    findings = Findings(root)
    check(StoreView(root, config), findings, lambda offset: None)
    return findings


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The objects that it printed as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


def run(*arguments: object, command: click.Command = store_command) -> Ended:
    """Run ``rockhopper-broker store`` with *arguments*, or another *command*."""
    logging = structlog.get_config()
    # In tests the store logs to standard output, which the command captures for now.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    try:
        result = CliRunner().invoke(command, [str(each) for each in arguments])
    finally:
        structlog.configure(**logging)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)
