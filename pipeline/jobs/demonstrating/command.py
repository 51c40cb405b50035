"""`python -m rockhopper.pipeline demo`."""

import click

from rockhopper.pipeline.jobs.running import job_options, run_job


@click.command()
@click.option(
    "--output",
    "-o",
    default="spark-demo",
    show_default=True,
    type=click.Path(file_okay=False),
    help="Where the page and the archive go.",
)
@click.option(
    "--seconds", type=float, default=12.0, show_default=True, help="How long text is streamed."
)
@job_options
def demo(
    output: str, seconds: float, dry_run: bool, as_json: bool, master: str | None, quiet: bool
) -> None:
    """Stream text through a broker, count, archive and replay it; nothing is needed beforehand.

    It starts a broker of its own and takes it away again. The text is Python's own reference.
    """
    from rockhopper.pipeline.jobs.demonstrating.job import demo as run_demo

    run_job(
        lambda progress: run_demo(
            output, stream_s=seconds, dry_run=dry_run, master=master, progress=progress
        ),
        as_json=as_json,
        quiet=quiet,
    )
