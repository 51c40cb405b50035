"""Our status codes are those of Apache's proxy, or listed with a reason."""

import json
from pathlib import Path

import pytest

from tests.interop import rockhopper
from tests.interop.grpc import status_codes
from tests.interop.grpc.status_differences import DIFFERENCES
from tests.support.free_ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def test_status_codes_are_those_of_apache(tmp_path: Path) -> None:
    expected = json.loads(status_codes.GOLDEN.read_text())
    on_purpose = {case: ours for cases in DIFFERENCES.values() for case, ours in cases.items()}
    assert set(on_purpose) <= set(expected)
    port = free_port()
    settings = {"grpcPort": str(port), "enableMixedMessageType": "true"}
    server = rockhopper.start(tmp_path, settings=settings)
    try:
        answers = status_codes.ask(f"127.0.0.1:{port}", server.nameserver)
    finally:
        server.kill()
    assert {
        case: answer
        for case, answer in answers.items()
        if answer not in (expected[case], on_purpose.get(case))
    } == {}
