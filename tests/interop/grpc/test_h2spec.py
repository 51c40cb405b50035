"""h2spec finds nothing to say about our HTTP/2 that is not about serving web pages."""

import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from tests.interop import rockhopper
from tests.interop.grpc.conftest import require
from tests.interop.grpc.programs import BUILT
from tests.support.free_ports import free_port
from tests.support.one_at_a_time import one_at_a_time

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

MODULE = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"

NOT_OURS: dict[str, str] = {}
"""Cases that fail on purpose, with the reason."""


def h2spec() -> Path:
    """The program, installed once."""
    BUILT.mkdir(parents=True, exist_ok=True)
    program = BUILT / "h2spec"
    with one_at_a_time(BUILT):
        if not program.exists():
            environment = {**os.environ, "GOBIN": str(BUILT)}
            subprocess.run(["go", "install", MODULE], env=environment, check=True, cwd=BUILT)
    return program


def test_h2spec_has_nothing_to_say(tmp_path: Path) -> None:
    require([] if shutil.which("go") else ["go"], "h2spec")
    port = free_port()
    server = rockhopper.start(tmp_path / "broker", settings={"grpcPort": str(port)})
    report = tmp_path / "report.xml"
    command = [str(h2spec()), "-h", "127.0.0.1", "-p", str(port), "-o", "3", "-j", str(report)]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=500).stdout
    finally:
        server.kill()
    cases = list(xml.parse(report).iter("testcase"))
    assert len(cases) > 140, output[-1000:]
    failed = {
        f"{case.get('package')}: {case.get('classname')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    assert failed - set(NOT_OURS) == set(), json.dumps(sorted(failed), indent=1)
