"""Extension modules that are there, that are not, and that are turned off."""

import pytest

from rockhopper.protocol import compiled


def test_what_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "MISSING", [])
    monkeypatch.delenv("ROCKHOPPER_PURE_PYTHON", raising=False)
    assert compiled.compiled("math") is not None
    assert compiled.extent() == "all"
    assert compiled.compiled("rockhopper.protocol._nowhere") is None
    assert compiled.compiled("rockhopper.broker._gone") is None
    assert compiled.extent() == "all but gone, nowhere: slower, no C compiler at installation"


def test_python_alone_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "MISSING", [])
    monkeypatch.setenv("ROCKHOPPER_PURE_PYTHON", "1")
    assert compiled.compiled("math") is None
    assert compiled.MISSING == ["math"]
