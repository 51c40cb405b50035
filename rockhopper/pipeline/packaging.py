"""The pipeline as one file for Spark's executors: a zip of Python sources.

The wheel of the whole project holds a compiled extension of the broker, which Python does not load
from a zip. The pipeline does not need the broker. What it needs besides, numpy and pyarrow and
the client's few, must be installed where the executors run.
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
"""Packages of Python alone that go along, so that executors need not have them."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_zip(path: str | os.PathLike[str]) -> int:
    """Write the zip for ``--py-files``, the same bytes for the same sources; returns its size."""
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
    """Whether this is a session of Spark Connect, which has no SparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def ship(spark: "SparkSession") -> None:
    """Give the executors of *spark* this package, unless they are on this machine anyway.

    A server of Spark Connect keeps it for this session, and its own workers find it as well.
    """
    if not is_remote(spark):
        master = str(spark.sparkContext.master)
        if master.startswith("local") and not master.startswith("local-cluster"):
            return
    # Executors fetch it from the driver whenever they start: it stays as long as this process.
    directory = tempfile.mkdtemp(prefix="rockhopper-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    file = Path(directory) / "rockhopper-pipeline.zip"
    write_zip(file)
    if is_remote(spark):
        spark.addArtifacts(str(file), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(file))
