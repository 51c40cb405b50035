"""The results of jobs: dataclasses for people and programs."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from pathlib import PurePath
from typing import Any

from rockhopper.pipeline.errors import PipelineError

_LATER_WORD = re.compile(r"_([a-z0-9])")


class UsageProblem(PipelineError):
    """The arguments of a job are invalid; commands end with exit code 2."""


class JobResult:
    """The base of the dataclasses that jobs return; --json prints their fields."""

    away: Sequence[str] = ()
    """Offline brokers that may have more relevant data."""

    @property
    def is_good(self) -> bool:
        """False if a job ran successfully and found a fault: exit code 1."""
        return not self.away

    @property
    def warning(self) -> str:
        """What is missing, and the remedy; blank if nothing is."""
        if not self.away:
            return ""
        options = " ".join(f"--without {name}" for name in self.away)
        return (
            f"{are(self.away)} away, so what is there is missing here: start "
            f"{_format_them(self.away)} and run this again; if gone for good, say so with {options}"
        )

    def lines(self) -> Iterable[str]:
        """Return a summary as text."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join([*self.lines(), *filter(None, [self.warning])])


def are(brokers: Sequence[str]) -> str:
    """Return ``the broker a is``, ``the brokers a, b are``."""
    named = ", ".join(brokers)
    return f"the broker {named} is" if len(brokers) == 1 else f"the brokers {named} are"


def _format_them(brokers: Sequence[str]) -> str:
    return "it" if len(brokers) == 1 else "them"


def as_document(value: Any) -> Any:
    """Convert a value for JSON: dataclasses to objects with camelCase names, times to ISO 8601."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields_as_document(value)
    if isinstance(value, Mapping):
        return {str(key): as_document(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_document(item) for item in value]
    if isinstance(value, Enum):
        return as_document(value.value)
    return _scalar_as_document(value)


def _fields_as_document(value: Any) -> dict[str, Any]:
    return {
        _LATER_WORD.sub(lambda found: found[1].upper(), field.name): as_document(
            getattr(value, field.name)
        )
        for field in dataclasses.fields(value)
        if not field.name.startswith("_")
    }


def _scalar_as_document(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, PurePath):
        return str(value)
    return value


def format_size(size_bytes: int) -> str:
    """Format a size: ``1.4 GB``."""
    size = float(size_bytes)
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size_bytes:,} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Format a count: ``1 file``, ``2,000 files``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
