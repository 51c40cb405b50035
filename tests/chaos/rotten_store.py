"""A broker in this process on a damaged store: what it logs, refuses and returns."""

import asyncio
import time
import traceback
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import structlog

from rockhopper.broker import Broker
from rockhopper.broker.app import TEMPORARY_SETTINGS
from rockhopper.broker.server.remoting.startup import StartError
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.store.files.errors import StoreError
from tests.chaos import topics
from tests.chaos.reading import Reader
from tests.chaos.sinking import last_batch_id
from tests.chaos.verdict import Found
from tests.support.raw_peer import RawPeer

NAMING = frozenset({"warning", "error", "critical"})


class Damaging(Protocol):
    """A damage that can be done to a file."""

    def do(self, path: Path) -> None:
        """Damage the file."""


@dataclass
class Opened:
    """The result of opening a store."""

    refusal: str = ""
    is_crash: bool = False
    found: Found = field(default_factory=Found)
    named: dict[str, str] = field(default_factory=dict)
    """Warnings and errors of the log: the event, and an example of its line."""
    tracebacks: list[str] = field(default_factory=list)
    is_written_over: bool = False
    """Whether the broker replaced the file after it was damaged."""
    start_s: float = 0.0


def open_and_read(store: Path, damage: Damaging | None, name: Path) -> Opened:
    """Open a store and read everything.

    With *damage*, the file *name* is damaged while the broker serves the store.
    """
    lines: list[dict[str, Any]] = []

    def keep(_logger: object, method: str, event: MutableMapping[str, Any]) -> str:
        lines.append({**event, "level": method})
        return ""

    structlog.configure(
        processors=[structlog.processors.format_exc_info, keep],
        logger_factory=structlog.ReturnLoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(0),
        cache_logger_on_first_use=False,
    )
    opened = asyncio.run(_open(store, damage, name))
    opened.named = {str(one["event"]): str(one) for one in lines if one["level"] in NAMING}
    opened.tracebacks += [str(line) for line in lines if "Traceback" in str(line.get("exception"))]
    return opened


async def _open(store: Path, damage: Damaging | None, name: Path) -> Opened:
    opened = Opened()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: opened.tracebacks.append(str(context)))
    settings = {key: str(value) for key, value in topics.SETTINGS.items()}
    config = build_config(TEMPORARY_SETTINGS | settings | {"storePathRootDir": str(store)})
    broker = Broker(config)
    began_s = time.monotonic()
    try:
        await broker.start()
    except (StartError, StoreError, OSError) as error:
        opened.refusal = str(error)
    except Exception:
        opened.refusal, opened.is_crash = traceback.format_exc(), True
    else:
        opened.start_s = time.monotonic() - began_s
        inode = _inode(store / name)
        if damage is not None and inode is not None:
            damage.do(store / name)
        await _read(broker, opened)
        await broker.tables.scrub()
        opened.is_written_over = damage is not None and _inode(store / name) != inode
    await _stop(broker, opened)
    return opened


def _inode(path: Path) -> int | None:
    return path.stat().st_ino if path.exists() else None


async def _read(broker: Broker, opened: Opened) -> None:
    try:
        reader = Reader(broker.address)
        await reader.read()
        opened.found = reader.found
        async with RawPeer(broker.address) as peer:
            opened.found.last_batch_id = await last_batch_id(peer)
    except Exception:
        opened.tracebacks.append(traceback.format_exc())


async def _stop(broker: Broker, opened: Opened) -> None:
    try:
        await broker.stop()
    except (StoreError, OSError):
        pass  # damaged data cannot be saved, and was named
    except Exception:
        opened.tracebacks.append(traceback.format_exc())
