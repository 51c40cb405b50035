"""The job ``package``."""

import os
from dataclasses import dataclass

from rockhopper.pipeline.jobs.disk import name_disk_problems
from rockhopper.pipeline.jobs.results import JobResult, format_size
from rockhopper.pipeline.packaging import write_zip


@dataclass
class PackageResult(JobResult):
    """The file and its size."""

    path: str
    bytes: int = 0
    dry_run: bool = False

    def lines(self) -> list[str]:
        """See JobResult."""
        if self.dry_run:
            return [f"would write {self.path}"]
        return [
            f"wrote {self.path} ({format_size(self.bytes)})",
            f"spark-submit --py-files {self.path} your_app.py",
        ]


@name_disk_problems()
def package(output: str | os.PathLike[str], *, dry_run: bool = False) -> PackageResult:
    """Write the pipeline into the zip *output*."""
    size = 0 if dry_run else write_zip(output)
    return PackageResult(str(output), size, dry_run)
