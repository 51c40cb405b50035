"""Every program in docs/examples runs against a broker as it stands there."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper import ThreadedBroker
from tests.support.billing import AT_ONCE
from tests.support.hang import HANG_S

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    with ThreadedBroker(AT_ONCE) as broker:
        yield broker


@pytest.mark.parametrize("program", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_the_example_runs(program: Path, broker: ThreadedBroker) -> None:
    if program.stem == "tracing":
        pytest.importorskip("opentelemetry.sdk", reason="make test-extras brings it")
    broker.purge()
    environment = {**os.environ, "NAMESRV_ADDR": broker.nameserver, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", str(program)]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout


def test_every_example_is_shown_in_a_page() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    for program in EXAMPLES:
        assert f"examples/{program.name}" in pages
