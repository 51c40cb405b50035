"""A Spark Connect server on the loopback address."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.spark_cluster import spawn, wait_for

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED = re.compile(r"Spark Connect server started at: 127\.0\.0\.1:(\d+)")
# A separate finder finds editable installations.
_HIDE = """
import sys
sys.meta_path = [each for each in sys.meta_path if "editable" not in repr(each).lower()]
"""
_SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
}


@contextmanager
def running(directory: Path, package: Path) -> Iterator[str]:
    """Yield its address; its files are in *directory*. Its Python has *package*, but not ours."""
    hidden = directory / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(_HIDE)
    log = directory / "server.log"
    command = ["spark-submit", "--class", _SERVER, "--master", "local[2,2]"]
    for name, value in _SETTINGS.items():
        command += ["--conf", f"{name}={value}"]
    process = spawn([*command, "spark-internal"], log, PYTHONPATH=f"{hidden}:{package}")
    try:
        yield f"sc://127.0.0.1:{wait_for(log, _STARTED).group(1)}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
