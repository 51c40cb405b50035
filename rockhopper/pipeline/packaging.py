"""Package the pipeline for Spark's executors as one file: a zip of Python sources.

The wheel of the whole project contains a compiled extension of the broker, which Python cannot load
from a zip. The pipeline does not need the broker. Its dependencies (numpy, pyarrow and the few of
the client) must be installed on the executors.
"""

import atexit
import os
import shutil
import tempfile
import zipfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import rockhopper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS = ("client", "pipeline", "protocol")
BUNDLED = ("aiohappyeyeballs",)
"""Pure Python packages in the zip, so that executors need not install them."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_zip(path: str | os.PathLike[str]) -> int:
    """Write the zip for ``--py-files`` and return its size; equal sources give equal bytes."""
    package = Path(rockhopper.__path__[0])
    sources = [
        *package.glob("*.py"),
        *(path for part in PARTS for path in (package / part).rglob("*.py")),
    ]
    found = [(package.name / source.relative_to(package), source) for source in sources]
    for name in BUNDLED:
        (bundled,) = import_module(name).__path__
        found += [(name / path.relative_to(bundled), path) for path in Path(bundled).rglob("*.py")]
    target = Path(path)
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
            for place, source in sorted(found):
                info = zipfile.ZipInfo(place.as_posix(), _EPOCH)
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, source.read_bytes())
        os.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)
    return target.stat().st_size


def is_remote(spark: "SparkSession") -> bool:
    """Return whether this is a Spark Connect session, which has no SparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def ship(spark: "SparkSession") -> None:
    """Send this package to the executors of *spark*, unless they run on this machine.

    A Spark Connect server keeps it for this session, and the server's workers find it as well.
    """
    if not is_remote(spark):
        master = str(spark.sparkContext.master)
        if master.startswith("local") and not master.startswith("local-cluster"):
            return
    # Executors fetch the file from the driver at every start: keep it until this process ends.
    directory = tempfile.mkdtemp(prefix="rockhopper-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    file = Path(directory) / "rockhopper-pipeline.zip"
    write_zip(file)
    if is_remote(spark):
        spark.addArtifacts(str(file), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(file))
