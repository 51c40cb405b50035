"""The result of the job ``compact``."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from rockhopper.pipeline.jobs.results import JobResult, format_count, format_size


@dataclass(frozen=True)
class MergedTopic:
    """The number of files of a topic before and after."""

    topic: str
    files_before: int
    files_after: int
    bytes_before: int


@dataclass
class CompactResult(JobResult):
    """The result of one run, or of a dry run."""

    directory: str
    run: int | None = None
    """None if there was nothing to do."""
    topics: list[MergedTopic] = field(default_factory=list)
    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    """Unknown in a dry run."""
    dry_run: bool = False
    seconds: float = 0.0

    def lines(self) -> Iterator[str]:
        """See JobResult."""
        if not self.topics:
            yield f"no files of {self.directory} are small enough to be merged"
            return
        did = "would merge" if self.dry_run else "merged"
        became = "" if self.dry_run else f" of {format_size(self.bytes_after)}"
        yield (
            f"{did} {format_count(self.files_before, 'file')} of {format_size(self.bytes_before)} "
            f"into {self.files_after:,}{became}: {format_count(self.rows, 'message')} of "
            f"{self.directory}"
        )
        for each in self.topics:
            yield f"  {each.topic}: {each.files_before:,} into {each.files_after:,}"
