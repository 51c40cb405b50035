"""The load generator is started with the options of a case."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import load
from benchmarks.cases import BASE
from benchmarks.errors import BenchError


def test_a_case_says_how_many_messages_a_request_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "loadgen"
    program.write_text('#!/bin/sh\necho "$@" >&2\n')
    program.chmod(0o755)
    monkeypatch.setattr(load, "build_loadgen", lambda: program)
    with pytest.raises(BenchError, match="--batch 7 "):
        load.run(replace(BASE, messages_per_request=7), 1, 1, 0.0)
