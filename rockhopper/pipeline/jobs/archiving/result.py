"""The result of the job ``archive``."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from rockhopper.pipeline.jobs.results import JobResult, format_count, format_size

_SHOWN_MAX = 12


@dataclass(frozen=True)
class TopicCount:
    """The number of messages of a topic."""

    topic: str
    messages: int


@dataclass
class ArchiveResult(JobResult):
    """The result of one run, or of a dry run."""

    directory: str
    run: int
    source: str
    """The source: a store, or the brokers behind a name server."""
    rows: int = 0
    """Unknown in a dry run over files."""
    files: int = 0
    bytes: int = 0
    topics: list[TopicCount] = field(default_factory=list)
    undecoded: int = 0
    """Messages whose body did not decode: their ``value`` is null."""
    damaged: int = 0
    """Damaged places of the log that were skipped."""
    left_out: list[TopicCount] = field(default_factory=list)
    """Messages that were read but not chosen."""
    deletable_segments: list[str] = field(default_factory=list)
    away: list[str] = field(default_factory=list)
    """Brokers that were offline; a later run archives their messages."""
    unfinished_run: int | None = None
    """A run that was killed during its commit; this one completed it."""
    dry_run: bool = False
    from_files: bool = False
    tasks: int = 0
    log_bytes: int = 0
    seconds: float = 0.0

    def lines(self) -> Iterator[str]:
        """See JobResult."""
        if self.dry_run:
            yield from self._plan_lines()
            return
        if self.unfinished_run is not None:
            yield f"run {self.unfinished_run}, which had been killed, was finished"
        if self.rows == 0:
            yield f"nothing new in {self.source} for {self.directory}"
        else:
            yield (
                f"archived {format_count(self.rows, 'message')} of {self.source} in run "
                f"{self.run}: {format_count(self.files, 'file')}, {format_size(self.bytes)}, "
                f"{self.seconds:.1f} s, in {self.directory}"
            )
        yield from _topic_lines(self.topics)
        if self.undecoded:
            yield f"{format_count(self.undecoded, 'body', 'bodies')} did not decode: value is null"
        if self.damaged:
            yield f"{format_count(self.damaged, 'damaged place')} of the log skipped"
        if self.left_out:
            yield "not archived, since these topics were not chosen:"
            yield from _topic_lines(self.left_out)
        if self.deletable_segments:
            yield "these files of the log are archived whole, and the broker can do without them:"
            yield from (f"  {path}" for path in self.deletable_segments)

    def _plan_lines(self) -> Iterator[str]:
        if self.unfinished_run is not None:
            yield f"run {self.unfinished_run} was killed: it would be finished first"
        what = (
            f"read {format_size(self.log_bytes)} of the log of"
            if self.from_files
            else f"archive {format_count(self.rows, 'message')} of"
        )
        yield (
            f"run {self.run} would {what} {self.source} in {format_count(self.tasks, 'task')}, "
            f"into {self.directory}"
        )
        yield from _topic_lines(self.topics)


def _topic_lines(topics: list[TopicCount]) -> Iterator[str]:
    for each in topics[:_SHOWN_MAX]:
        yield f"  {each.topic}: {format_count(each.messages, 'message')}"
    if len(topics) > _SHOWN_MAX:
        yield f"  … and {format_count(len(topics) - _SHOWN_MAX, 'more topic')}"
