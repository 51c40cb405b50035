"""`python -m rockhopper.pipeline compact`."""

from typing import Any

import click

from rockhopper.pipeline.jobs.compacting.options import CompactOptions
from rockhopper.pipeline.jobs.running import options_of, run_asked


@click.command()
@options_of(CompactOptions)
def compact(**asked: Any) -> None:
    """Merge the small files of a topic and day in ARCHIVE into few large ones.

    \b
    Examples:
      python -m rockhopper.pipeline compact history
      python -m rockhopper.pipeline compact history -t orders --target-size 256m --dry-run
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.compacting.job import compact as run_compact

    run_asked(run_compact, CompactOptions, asked)
