"""`python -m rockhopper.pipeline package`."""

import click

from rockhopper.pipeline.jobs.running import run_job


@click.command()
@click.option(
    "--output",
    "-o",
    default="rockhopper-pipeline.zip",
    show_default=True,
    type=click.Path(dir_okay=False),
    help="The file to write.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one object.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
def package(output: str, as_json: bool, dry_run: bool) -> None:
    """Write the pipeline into a zip for the executors of a cluster.

    \b
    Example:
      python -m rockhopper.pipeline package
      spark-submit --master spark://host:7077 --py-files rockhopper-pipeline.zip app.py
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.packaging.job import package as run_package

    run_job(lambda _: run_package(output, dry_run=dry_run), as_json=as_json)
