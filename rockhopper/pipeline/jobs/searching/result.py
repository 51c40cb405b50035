"""The result of a search, and the format of messages in it."""

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rockhopper.client.printable import format_preview, make_printable
from rockhopper.pipeline.jobs.results import JobResult, format_count
from rockhopper.pipeline.jobs.searching.work import Row

_BODY_WIDTH = 60
_SKIPPED_SHOWN_MAX = 5


@dataclass
class SearchResult(JobResult):
    """The first matches by store time; ``match_count`` includes duplicates."""

    sources: list[str]
    is_dry_run: bool
    task_count: int = 0
    looked_at_count: int = 0
    match_count: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Damaged places and files that were left out."""
    away: list[str] = field(default_factory=list)
    """Brokers that were offline."""
    seconds: float = 0.0
    _as_json_lines: bool = False

    def lines(self) -> Iterable[str]:
        """Yield a table as text, or each message as JSON."""
        if self._as_json_lines and not self.is_dry_run:
            for message in self.messages:
                yield json.dumps(message, ensure_ascii=False, separators=(",", ":"))
            return
        if self.is_dry_run:
            yield (
                f"Would search {' and '.join(self.sources)}, in "
                f"{format_count(self.task_count, 'task')}"
            )
            return
        for message in self.messages:
            yield from _table_lines(message)
        more = ""
        if len(self.messages) < self.match_count:
            more = f" (of {self.match_count:,} matches, repeated ones included)"
        looked_at = f"; looked at {self.looked_at_count:,}" if self.looked_at_count else ""
        count = format_count(len(self.messages), "message")
        yield f"{count}{more}{looked_at} in {self.seconds:.1f} s"
        for place in self.skipped[:_SKIPPED_SHOWN_MAX]:
            yield f"  left out: {place}"
        if len(self.skipped) > _SKIPPED_SHOWN_MAX:
            yield f"  and {len(self.skipped) - _SKIPPED_SHOWN_MAX:,} more places"


def document(row: Row) -> dict[str, Any]:
    """Return a message as JSON; a body that is not text is in base64."""
    body: bytes = row["body"] or b""
    found: dict[str, Any] = {
        name: row[name]
        for name in (
            "topic",
            "brokerName",
            "queueId",
            "queueOffset",
            "msgId",
            "offsetMsgId",
            "tags",
            "keys",
        )
    }
    for name in ("storeTimestamp", "bornTimestamp"):
        moment: datetime | None = row[name]
        found[name] = None if moment is None else _utc(moment)
    found["properties"] = dict(row["properties"] or ())
    found["physOffset"] = row["physOffset"]
    try:
        found["body"] = body.decode()
    except UnicodeDecodeError:
        found["bodyBase64"] = base64.b64encode(body).decode()
    found["place"] = row["place"]
    return found


def _table_lines(message: dict[str, Any]) -> Iterator[str]:
    body = message.get("body")
    shown = (
        format_preview(base64.b64decode(message["bodyBase64"]))
        if body is None
        else make_printable(body)
    )
    if len(shown) > _BODY_WIDTH:
        shown = f"{shown[: _BODY_WIDTH - 2]} …"
    broker = f" of {message['brokerName']}" if message["brokerName"] else ""
    tags = f" [{make_printable(message['tags'])}]" if message["tags"] else ""
    keys = f" keys {make_printable(message['keys'])}" if message["keys"] else ""
    yield (
        f"{message['storeTimestamp'][:23]}  {message['topic']} queue {message['queueId']}{broker}, "
        f"offset {message['queueOffset']}{tags}{keys}"
    )
    yield f"    {shown}"
    yield f"    {message['place']}, commit log offset {message['physOffset']}, {message['msgId']}"


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
