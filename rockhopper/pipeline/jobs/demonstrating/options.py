"""The options of ``demo``."""

# ruff: noqa: RUF009  (option() makes fields; it is no shared mutable default)

import os
from dataclasses import KW_ONLY, dataclass

from rockhopper.pipeline.jobs.options import JobOptions, option


@dataclass(frozen=True)
class DemoOptions(JobOptions):
    """The output directory, and the duration."""

    output: str | os.PathLike[str] = option(
        "--output",
        "-o",
        default="spark-demo",
        show_default=True,
        is_directory=True,
        help="Where the page and the archive go.",
    )
    _: KW_ONLY
    stream_s: float = option(
        "--seconds", default=12.0, type=float, show_default=True, help="How long text is streamed."
    )
