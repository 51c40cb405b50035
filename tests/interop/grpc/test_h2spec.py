"""h2spec, the conformance tests of HTTP/2, against our port."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop import rockhopper
from tests.interop.grpc.conftest import require
from tests.interop.grpc.programs import BUILT
from tests.support.free_ports import free_port
from tests.support.hang import HANG_S
from tests.support.one_at_a_time import one_at_a_time

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

MODULE = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"

_failed = re.compile(r"× \d+: (.*)").findall


def h2spec() -> Path:
    """The program, installed once."""
    BUILT.mkdir(parents=True, exist_ok=True)
    program = BUILT / "h2spec"
    with one_at_a_time(BUILT):
        if not program.exists():
            environment = {**os.environ, "GOBIN": str(BUILT)}
            done = subprocess.run(["go", "install", MODULE], env=environment, cwd=BUILT)
            if done.returncode:
                pytest.skip("h2spec cannot be had here")
    return program


def test_every_case_of_h2spec_passes(tmp_path: Path) -> None:
    require([] if shutil.which("go") else ["go"], "h2spec")
    port = free_port()
    server = rockhopper.start(tmp_path, settings={"grpcPort": str(port)})
    try:
        assert _failing(port) == set()
    finally:
        server.kill()


def _failing(port: int) -> set[str]:
    """The names of the cases that fail."""
    command = [str(h2spec()), "-h", "127.0.0.1", "-p", str(port), "-o", "3"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S).stdout
    assert "145 tests" in output, output[-1000:]
    return set(_failed(output.partition("Failures:")[2]))
