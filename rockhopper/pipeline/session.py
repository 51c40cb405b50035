"""Create Spark sessions with the sources ``rocketmq`` and ``rocketmq-store``."""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.java import ensure_java
from rockhopper.pipeline.packaging import is_remote, ship
from rockhopper.pipeline.spark_home import quick_to_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYSPARK_VERSION_MIN = (4, 1)
PYARROW_VERSION_MIN = (18,)

_INSTALL = "pip install 'rockhopper-mq[spark]'"
_SOURCES = (
    ("rockhopper.pipeline.store_source.source", "StoreSource"),
    ("rockhopper.pipeline.network.source", "RocketMQSource"),
)
# For one machine: no web page, no progress bars between a notebook's lines, a quick start.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions",
}
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def local_session(
    app_name: str = "rockhopper", *, master: str = "local[*]", **conf: str
) -> "SparkSession":
    """Return a session on this machine with both sources; the running one if there is one.

    It finds a Java by itself (pipeline.java). *conf* are settings of Spark, for example
    ``**{"spark.driver.memory": "4g"}``; they override the defaults of this module. With the
    *master* of a cluster, only the driver runs here, and the executors receive this package.

    Raises:
        PipelineError: there is no Java, or a package is missing or too old.
    """
    check_packages()
    ensure_java()
    from pyspark.sql import SparkSession

    # Otherwise Spark uses the python3 on PATH for its workers.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    home: AbstractContextManager[None] = nullcontext()
    if master.startswith("local"):
        home = quick_to_start()
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        cores = os.cpu_count() or 1
        conf = {**_LOOPBACK, "spark.sql.shuffle.partitions": str(cores), **conf}
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {**_DEFAULTS, **conf}
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with home, _packages_on_python_path():
        spark = builder.getOrCreate()
    ship(spark)
    return register(spark)


def register(spark: "SparkSession") -> "SparkSession":
    """Register both sources in *spark*, and return it.

    The session's workers must find this package: installed, or by ``--py-files``. A Spark Connect
    server receives it from this call.

    Raises:
        PipelineError: a package is missing or too old.
    """
    check_packages()
    if is_remote(spark):
        ship(spark)
    for module_name, class_name in _SOURCES:
        try:
            module = import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not module_name.startswith(error.name):
                raise
            continue
        spark.dataSource.register(getattr(module, class_name))
    return spark


@contextmanager
def naming_missing_packages() -> Iterator[None]:
    """Turn an ImportError caused by a missing Spark extra into a PipelineError.

    Raises:
        PipelineError: names the package that is missing or too old.
    """
    try:
        yield
    except ImportError:
        check_packages()
        raise


def check_packages() -> None:
    """Check that the packages of the Spark extra are installed and new enough.

    Raises:
        PipelineError: names the package that is missing or too old.
    """
    for name, minimum in (("pyarrow", PYARROW_VERSION_MIN), ("numpy", (1, 26))):
        _check_package(name, minimum)
    _check_package("pyspark", PYSPARK_VERSION_MIN)


def _check_package(name: str, minimum: tuple[int, ...]) -> None:
    wanted = ".".join(map(str, minimum))
    try:
        version = str(import_module(name).__version__)
    except ImportError:
        raise PipelineError(
            f"the pipeline needs {name} {wanted} or newer, and it is not installed: {_INSTALL}"
        ) from None
    found = tuple(int(part) for part in version.split(".")[: len(minimum)] if part.isdecimal())
    if found < minimum:
        raise PipelineError(
            f"the pipeline needs {name} {wanted} or newer, and {version} is installed: {_INSTALL}"
        )


@contextmanager
def _packages_on_python_path() -> Iterator[None]:
    """Add this package and PySpark to PYTHONPATH for the workers, if they are not installed.

    Spark's workers inherit the environment of the JVM, which starts inside this block.
    """
    files = [import_module(name).__file__ for name in ("rockhopper", "pyspark", "py4j")]
    roots = dict.fromkeys(str(Path(str(file)).resolve().parents[1]) for file in files)
    before = os.environ.get("PYTHONPATH")
    missing = [
        root for root in roots if not {"site-packages", "dist-packages"} & {*Path(root).parts}
    ]
    if not missing:
        yield
        return
    os.environ["PYTHONPATH"] = os.pathsep.join([*missing, *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
