"""What a session needs, said in one sentence where it is missing."""

import builtins
import sys
from types import ModuleType
from typing import Any

import pytest

import rockhopper
from rockhopper.pipeline import session
from rockhopper.pipeline.errors import PipelineError


@pytest.mark.parametrize(
    ("name", "version"), [("pyspark", "4.0.2"), ("pyarrow", "17.0.0"), ("numpy", "1.25.2")]
)
def test_a_package_that_is_too_old(
    name: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ModuleType(name)
    old.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, old)

    with pytest.raises(PipelineError, match=rf"{name} .* or newer, and {version} is .*pip install"):
        session.check_packages()


@pytest.mark.parametrize("name", ["pyspark", "pyarrow", "numpy"])
def test_a_package_that_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(PipelineError, match=rf"needs {name} .* not installed: pip install"):
        session.check_packages()


def test_importing_the_package_needs_neither_spark_nor_arrow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("rockhopper.pipeline")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(rockhopper, "pipeline")
    real_import = builtins.__import__

    def no_spark(name: str, *rest: Any) -> Any:
        assert name.partition(".")[0] not in ("pyspark", "pyarrow", "numpy")
        return real_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", no_spark)
    __import__("rockhopper.pipeline")
