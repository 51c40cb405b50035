"""Extension modules that are there, that are not, that are stale, and that are turned off."""

import os
import shutil
import sys
import sysconfig
from importlib.util import find_spec
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


COMPILED = find_spec("rockhopper.protocol._framing")


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the package ``made_up``, with an extension module of the year 2001."""
    if COMPILED is None or COMPILED.origin is None:
        pytest.skip("it is not compiled")
    module = tmp_path / "made_up" / Path(COMPILED.origin).name
    module.parent.mkdir()
    shutil.copyfile(COMPILED.origin, module)
    os.utime(module, (1_000_000_000, 1_000_000_000))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "made_up._framing", raising=False)
    return module.parent


@pytest.mark.parametrize("name", ["_framing.c", "_shared.h"])
def test_a_module_that_is_older_than_a_source_beside_it_is_refused(
    made_up: Path, name: str
) -> None:
    (made_up / name).touch()
    with pytest.raises(compiled.StaleModuleError) as refused:
        compiled.import_compiled("made_up._framing")
    message = str(refused.value)
    assert message.startswith(f"cannot use {made_up}")
    assert f"before {made_up / name} changed" in message
    assert f"`{sys.executable} -m pip install --no-deps -e {made_up.parent}`" in message


@pytest.mark.parametrize(("name", "later_s"), [("_framing.c", 1), ("_framing.py", 1000)])
def test_a_module_of_the_same_copy_and_one_without_sources_are_used(
    made_up: Path, name: str, later_s: int
) -> None:
    (made_up / name).touch()
    os.utime(made_up / name, (1_000_000_000 + later_s, 1_000_000_000 + later_s))
    assert compiled.import_compiled("made_up._framing") is not None
    assert compiled.FOUND == ["framing"]


def test_a_stale_module_does_not_matter_to_pure_python(
    made_up: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (made_up / "_framing.c").touch()
    monkeypatch.setenv("ROCKHOPPER_PURE_PYTHON", "1")
    assert compiled.import_compiled("made_up._framing") is None
