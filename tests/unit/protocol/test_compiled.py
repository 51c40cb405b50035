"""Extension modules that are there, that are not, and that are turned off."""

import shutil
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from rockhopper.protocol import compiled


@pytest.fixture(autouse=True)
def _as_at_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "MISSING", [])
    monkeypatch.setattr(compiled, "FOUND", [])
    monkeypatch.delenv("ROCKHOPPER_PURE_PYTHON", raising=False)


def test_what_cannot_be_had_is_named() -> None:
    assert compiled.import_compiled("math") is not None
    assert compiled.extent() == "all"
    assert compiled.import_compiled("rockhopper.protocol._nowhere") is None
    assert compiled.import_compiled("rockhopper.broker._gone") is None
    assert compiled.extent().startswith("all but gone, nowhere: slower; ")


def test_none_is_none() -> None:
    assert compiled.import_compiled("rockhopper.protocol._nowhere") is None
    assert compiled.extent().startswith("none: slower; ")


@pytest.mark.parametrize(
    ("has_compiler", "has_headers", "told"),
    [
        (False, False, "no C compiler"),
        (True, False, "Python.h is missing: install python3-dev"),
        (True, True, "install rockhopper again"),
    ],
)
def test_what_is_missing_to_compile_is_said(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    has_compiler: bool,
    has_headers: bool,
    told: str,
) -> None:
    def which(_name: str) -> str | None:
        return "/usr/bin/gcc" if has_compiler else None

    def get_path(_name: str, *_: Any) -> str:
        return str(tmp_path)

    monkeypatch.setattr(shutil, "which", which)
    monkeypatch.setattr(sysconfig, "get_path", get_path)
    if has_headers:
        (tmp_path / "Python.h").touch()
    compiled.import_compiled("rockhopper.protocol._nowhere")
    assert told in compiled.extent()


def test_python_alone_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKHOPPER_PURE_PYTHON", "1")
    assert compiled.import_compiled("math") is None
    assert compiled.MISSING == ["math"]
    assert compiled.extent() == "none: slower; ROCKHOPPER_PURE_PYTHON=1 is set"
