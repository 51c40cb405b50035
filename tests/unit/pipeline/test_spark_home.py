"""Spark's Python processes import the installed PySpark rather than a zip of it."""

import os
from pathlib import Path

import pytest

from rockhopper.pipeline.spark_home import home_without_zip, quick_to_start
from tests.support.written_logs import environment


def installed(package: Path) -> Path:
    for name in ("bin", "jars", "sbin", "python/lib", "__pycache__"):
        (package / name).mkdir(parents=True)
    (package / "python" / "lib" / "pyspark.zip").touch()
    (package / "bin" / "spark-submit").write_text('#!/bin/sh\necho "$SPARK_HOME"\n')
    (package / "bin" / "spark-submit").chmod(0o755)
    return package


def test_all_but_the_zip_is_there_and_it_is_made_once(tmp_path: Path) -> None:
    package = installed(tmp_path / "lib" / "pyspark")
    with environment(XDG_CACHE_HOME=str(tmp_path / "cache")):
        home = home_without_zip(package)
        assert home is not None
        assert sorted(path.name for path in home.iterdir()) == ["bin", "jars", "sbin"]
        assert not (home / "python" / "lib" / "pyspark.zip").exists()
        assert home_without_zip(package) == home
        # Another release is installed in its place.
        (package / "data").mkdir()
        assert home_without_zip(package) == home
        assert (home / "data").resolve() == package / "data"
    assert [path.name for path in home.parent.iterdir()] == [home.name]


def test_a_client_without_jars_has_none(tmp_path: Path) -> None:
    assert home_without_zip(tmp_path) is None


def test_a_home_that_is_given_stays(tmp_path: Path) -> None:
    with environment(SPARK_HOME="/opt/spark"):
        with quick_to_start():
            assert os.environ["SPARK_HOME"] == "/opt/spark"
        assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_the_variable_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = installed(tmp_path / "pyspark")
    monkeypatch.setattr("pyspark.__file__", str(package / "__init__.py"))
    with environment(SPARK_HOME=None, XDG_CACHE_HOME=str(tmp_path / "cache")):
        with quick_to_start():
            assert (Path(os.environ["SPARK_HOME"]) / "jars").is_dir()
        assert "SPARK_HOME" not in os.environ
