"""Without PySpark, or with one that is too old, jobs say so in one sentence; help needs none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hang import HANG_S

pytestmark = pytest.mark.costly

ROOT = Path(__file__).parents[4]


def run(*command: str, pyspark: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run Python where importing pyspark runs the module *pyspark*."""
    package = directory / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text(pyspark)
    environment = os.environ | {"PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, *command],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("pyspark", "says"),
    [
        (
            '__version__ = "3.5.1"',
            "the pipeline needs pyspark 4.1 or newer, and 3.5.1 is installed",
        ),
        (
            'raise ModuleNotFoundError("No module named pyspark", name="pyspark")',
            "the pipeline needs pyspark 4.1 or newer, and it is not installed",
        ),
    ],
)
@pytest.mark.parametrize("way", ["command", "function"])
def test_a_job(way: str, pyspark: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    call = {
        "command": ("-m", "rockhopper.pipeline", "archive", "history", "--path", "store"),
        "function": (
            "-c",
            "from rockhopper.pipeline import jobs; jobs.archive('history', path='store')",
        ),
    }[way]

    ran = run(*call, pyspark=pyspark, directory=tmp_path)

    assert ran.returncode == 1
    assert f"{says}: pip install 'rockhopper-mq[spark]'" in ran.stderr
    if way == "command":
        assert ran.stderr.count("\n") == 1


def test_help_needs_no_pyspark(tmp_path: Path) -> None:
    ran = run(
        "-m",
        "rockhopper.pipeline",
        "archive",
        "--help",
        pyspark="raise ModuleNotFoundError",
        directory=tmp_path,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
