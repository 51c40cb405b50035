"""`python -m rockhopper.pipeline audit`."""

from typing import Any

import click

from rockhopper.pipeline.jobs.auditing.options import AuditOptions
from rockhopper.pipeline.jobs.running import options_of, run_asked


@click.command()
@options_of(AuditOptions)
def audit(**asked: Any) -> None:
    """Look for everything that is wrong in the directory STORE, and say where and what to do.

    Every message's CRC, consume queues and index files against the commit log, and an archive
    against it. Nothing is changed, and a broker may run on the store. Exit code 1 says that
    something is wrong.

    \b
    Examples:
      python -m rockhopper.pipeline audit /var/lib/rockhopper
      python -m rockhopper.pipeline audit /var/lib/rockhopper --archive history --json
      python -m rockhopper.pipeline audit ~/store --check crc
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.pipeline.jobs.auditing.job import audit as run_audit

    run_asked(run_audit, AuditOptions, asked)
