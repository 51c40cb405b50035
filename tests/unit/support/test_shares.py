import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shares import SPARK, deal, group, worst

CONFTEST = """
from tests.support.shares import Share, add_options

def pytest_addoption(parser):
    add_options(parser)

def pytest_configure(config):
    if config.option.shares > 1:
        config.pluginmanager.register(Share(config))
"""


def test_each_module_has_one_share_and_shares_are_alike() -> None:
    dealt = deal([("a", 50), ("b", 40), ("c", 30), ("d", 20)], 2)
    assert dealt == {"a": 0, "b": 1, "c": 1, "d": 0}


def test_a_group_stays_together_and_spark_weighs_more() -> None:
    pages = [("tests/unit/docs/test_a.py", 30), ("tests/unit/docs/operations/test_b.py", 30)]
    spark = [("tests/pipeline/test_c_in_spark.py", 8), ("tests/pipeline/test_d_in_spark.py", 8)]
    dealt = deal([*pages, *spark, ("tests/unit/test_e.py", 10)], 2)
    assert dealt == {SPARK: 0, "the pages": 1, "tests/unit/test_e.py": 1}
    assert group("tests/unit/test_e.py") == "tests/unit/test_e.py"


@pytest.mark.parametrize(
    ("results", "expected"),
    [([0, 0], 0), ([0, 1], 1), ([1, 0], 1), ([0, 5], 0), ([5, 0], 0), ([5, 1], 1), ([5, 5], 5)],
)
def test_one_failed_share_fails_the_run(results: list[int], expected: int) -> None:
    assert worst(results) == expected


def test_a_run_in_shares_reports_every_module_once_and_fails_for_another_share(
    tmp_path: Path,
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_large.py").write_text(f"def test_a(): pass  {'#' * 100}\n")
    (tmp_path / "test_small.py").write_text("def test_b(): assert 1 == 2\n")
    plugins = ("hypothesispytest", "asyncio", "rockhopper", "xdist", "timeout")
    without = [option for plugin in plugins for option in ("-p", f"no:{plugin}")]
    command = [sys.executable, "-m", "pytest", *without, "--rootdir", str(tmp_path), "--shares=2"]
    run = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    own, _, other = run.stdout.partition("1 passed")
    assert "test_small.py" not in own
    assert "test_small.py::test_b" in other
    assert "1 failed" in other
    alone = subprocess.run(
        [*command, "--share=0", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert alone.returncode == 0
    assert "test_small.py" not in alone.stdout
