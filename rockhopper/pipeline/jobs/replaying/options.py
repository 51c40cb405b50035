"""The options of ``replay``."""

# ruff: noqa: RUF009  (option() makes fields; it is no shared mutable default)

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from rockhopper.pipeline.jobs.options import (
    BrokersOptions,
    argument,
    option,
    time_ms,
    topics_option,
)
from rockhopper.pipeline.jobs.results import UsageProblem


def _mapping(_flag: str, targets: Sequence[str]) -> str | dict[str, str] | None:
    pairs = [text.partition("=") for text in targets]
    plain = [old for old, equals, _ in pairs if not equals]
    if plain and len(pairs) > 1:
        raise UsageProblem(
            f"--to {plain[0]} sends everything there, so it goes with no other --to: leave the "
            "others out, or write OLD=NEW"
        )
    if plain:
        return plain[0]
    return {old: new for old, _, new in pairs} or None


@dataclass(frozen=True)
class ReplayOptions(BrokersOptions):
    """Replay the files of *source* to the brokers behind *nameserver*."""

    source: str | os.PathLike[str] = argument()
    _: KW_ONLY
    nameserver: str = field()
    to: str | Mapping[str, str] | None = option(
        "--to",
        parse=_mapping,
        multiple=True,
        metavar="TOPIC|OLD=NEW",
        help="The topic to send to; or for each topic another. Default: where messages came from.",
    )
    """A topic for all messages, or old names with new ones; then only those are replayed."""
    topics: Sequence[str] = topics_option()
    start_ms: int | None = option(
        "--from",
        parse=time_ms,
        metavar="TIME",
        help="Only messages stored at TIME or later.",
    )
    end_ms: int | None = option(
        "--until", parse=time_ms, metavar="TIME", help="Only messages stored before TIME."
    )
    key: str | None = option("--key", help="Only messages with this key.")
    where: str | None = option(
        "--where", metavar="SQL", help="Only messages that this condition of SQL passes."
    )
    rate: float | None = option(
        "--rate", type=float, metavar="N", help="At most N messages per second."
    )
    job_id: str | None = option(
        "--id", metavar="ID", help="The replay's name; another one sends again."
    )
    delivery: str = option(
        "--delivery",
        default="auto",
        choices=["auto", "exactly-once", "at-least-once"],
        show_default=True,
        help="auto: exactly once where brokers can, which Apache's cannot.",
    )
    broker: str = option("--broker", default="", metavar="NAME", help="Publish on this broker.")
    state: str | os.PathLike[str] | None = option(
        "--state",
        metavar="DIRECTORY",
        help="Where to keep the plan; else beside the messages.",
    )
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
