"""The options of ``audit``."""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass

from rockhopper.pipeline.jobs.options import StoreOptions, option


@dataclass(frozen=True)
class AuditOptions(StoreOptions):
    """Audit the store at *path*."""

    _: KW_ONLY
    archive: str | None = option(
        "--archive", metavar="DIRECTORY", help="Compare this archive with the log as well."
    )
    broker_name: str | None = option(
        "--broker-name", metavar="NAME", help="Which of the archive's brokers the store belongs to."
    )
    checks: Iterable[str] | None = option(
        "--check",
        multiple=True,
        metavar="CHECK",
        help="Only this: crc, queues, index or archive; repeatable.",
    )
