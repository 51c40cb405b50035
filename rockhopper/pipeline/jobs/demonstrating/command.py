"""`python -m rockhopper.pipeline demo`."""

from typing import Any

import click

from rockhopper.pipeline.jobs.demonstrating.options import DemoOptions
from rockhopper.pipeline.jobs.running import options_of, run_asked


@click.command()
@options_of(DemoOptions)
def demo(**asked: Any) -> None:
    """Stream text through a broker, count, archive and replay it; nothing is needed beforehand.

    It starts a broker of its own and takes it away again. The text is Python's own reference.
    """
    from rockhopper.pipeline.jobs.demonstrating.job import demo as run_demo

    run_asked(run_demo, DemoOptions, asked)
