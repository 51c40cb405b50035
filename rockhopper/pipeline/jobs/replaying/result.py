"""The result of the job ``replay``."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from rockhopper.pipeline.jobs.results import JobResult, are, format_count


@dataclass
class ReplayResult(JobResult):
    """The result of a run, or of a dry run."""

    id: str
    source: str
    rows: int
    """The number of messages of the whole replay."""
    sent: int = 0
    """The number of messages that this run sent, or would send."""
    batches: int = 0
    files: int = 0
    delivery: str = ""
    broker: str = ""
    topics: list[str] = field(default_factory=list)
    """The target topics."""
    resumed_at_batch: int = 0
    away: list[str] = field(default_factory=list)
    """Brokers that were offline during the last archive run."""
    dry_run: bool = False
    seconds: float = 0.0

    @property
    def warning(self) -> str:
        """See JobResult."""
        if not self.away:
            return ""
        return (
            f"when {self.source} was last added to, {are(self.away)} noted as away, so what was "
            "there is not replayed: archive again when all are back, and replay the rest with "
            "another --id and --from; if gone for good, archive with --without"
        )

    def lines(self) -> Iterator[str]:
        """See JobResult."""
        where = ", ".join(self.topics) or "no topic"
        of = f"{format_count(self.rows, 'message')} of {format_count(self.files, 'file')}"
        if not self.rows:
            yield f"nothing in {self.source} is to be replayed"
            return
        if not self.sent:
            yield (
                f"all {of} were replayed before, as {self.id}; with another --id they are sent "
                "once more, and so is what was archived since"
            )
            return
        if self.dry_run:
            if self.resumed_at_batch:
                yield f"would continue at batch {self.resumed_at_batch} of {self.batches}"
                of = f"{format_count(self.sent, 'message')} of {format_count(self.rows, 'message')}"
            yield f"would replay {of} into {where}, {self.delivery}, as {self.id}"
            return
        if self.resumed_at_batch:
            yield f"continued at batch {self.resumed_at_batch} of {self.batches}"
        on = f" on {self.broker}" if self.broker else ""
        yield (
            f"replayed {format_count(self.sent, 'message')} into {where}{on} as {self.id}: "
            f"{format_count(self.batches, 'batch', 'batches')}, {self.delivery}, "
            f"{self.seconds:.1f} s"
        )
        if self.delivery == "at-least-once":
            yield (
                "at-least-once: after a failure messages of one batch may be there twice, since "
                "these brokers cannot publish a batch at once"
            )
