"""The result of the job ``expire``."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rockhopper.pipeline.jobs.results import JobResult, format_count, format_size


@dataclass(frozen=True)
class ExpiredTopic:
    """The removed part of a topic."""

    topic: str
    messages: int
    files: int
    bytes: int


@dataclass
class ExpireResult(JobResult):
    """The result of one run, or of a dry run."""

    directory: str
    before_ms: int
    """All removed messages were stored before this time."""
    run: int | None = None
    """None if there was nothing to do."""
    topics: list[ExpiredTopic] = field(default_factory=list)
    messages: int = 0
    files: int = 0
    bytes: int = 0
    keep_old_ms: int = 0
    dry_run: bool = False

    def lines(self) -> Iterator[str]:
        """See JobResult."""
        before = datetime.fromtimestamp(self.before_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        if not self.topics:
            yield f"no file of {self.directory} has only messages from before {before} (UTC)"
            return
        did = "would remove" if self.dry_run else "removed"
        yield (
            f"{did} {format_count(self.messages, 'message')} from before {before} (UTC) of "
            f"{self.directory}: {format_count(self.files, 'file')}, {format_size(self.bytes)}"
        )
        for each in self.topics:
            yield (
                f"  {each.topic}: {format_count(each.messages, 'message')}, "
                f"{format_count(each.files, 'file')}, {format_size(each.bytes)}"
            )
        if self.keep_old_ms and not self.dry_run:
            yield (
                "the files are in _rockhopper/replaced still; the first run of archive, compact or "
                f"expire deletes them that comes {self.keep_old_ms / 60_000:g} minutes later"
            )
