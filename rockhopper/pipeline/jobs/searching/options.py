"""The options of ``search``."""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass

from rockhopper.pipeline.jobs.options import (
    BrokersOptions,
    RunTasks,
    option,
    time_ms,
    topics_option,
    without_option,
)


@dataclass(frozen=True)
class SearchOptions(BrokersOptions):
    """Search the store at *path* or the brokers behind *nameserver*, and *archive*."""

    path: str | None = option("--path", metavar="STORE", help="Search the files of this store.")
    _: KW_ONLY
    nameserver: str | None = option(
        "--live", typed_name="is_live", is_flag=True, help="Search over the network (--nameserver)."
    )
    archive: str | None = option("--archive", metavar="DIRECTORY", help="Search this archive, too.")
    key: str | None = option(
        "--key", "-k", metavar="KEY", help="One of the message's keys, or its unique key."
    )
    tag: str | None = option("--tag", metavar="TAG", help="The message's tag.")
    contains: str | bytes | None = option(
        "--contains", "-c", metavar="TEXT", help="A piece of the body."
    )
    sql92: str | None = option(
        "--sql92", metavar="CONDITION", help="A condition over properties, as in a subscription."
    )
    where: str | None = option("--where", metavar="CONDITION", help="Spark's SQL over the columns.")
    topics: Iterable[str] = topics_option()
    start_ms: int | None = option(
        "--from",
        parse=time_ms,
        metavar="TIME",
        help="Stored at this time or later: ms or ISO 8601, UTC.",
    )
    end_ms: int | None = option("--until", parse=time_ms, metavar="TIME", help="Stored before.")
    limit: int = option(
        "--limit", default=100, show_default=True, help="At most this many messages."
    )
    broker_name: str | None = option(
        "--broker-name", metavar="NAME", help="The broker of the store at --path."
    )
    as_json_lines: bool = option(
        "--lines", default=False, is_flag=True, help="Print each message as JSON."
    )
    without: Iterable[str] = without_option()
    run: RunTasks | None = None
    """Runs the tasks instead of Spark."""
