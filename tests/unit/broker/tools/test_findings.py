from pathlib import Path

import pytest

from rockhopper.broker.tools import findings
from rockhopper.broker.tools.findings import Findings
from rockhopper.broker.tools.output import flush


def test_each_damage_is_one_line_and_one_object(capfd: pytest.CaptureFixture[str]) -> None:
    found = Findings(Path("/s"), is_printed=True)
    found.report("queue", Path("/s/consumequeue/A/0"), "wrong", "repair it", queue_offset=3)
    found.report("record", Path("/log/0"), "gone", "restore it")
    flush()
    assert capfd.readouterr().out.splitlines() == [
        "consumequeue/A/0 queue_offset=3: wrong; repair it",
        "/log/0: gone; restore it",
    ]
    assert found.damages[0].json()["queueOffset"] == 3
    assert not found.is_sound


def test_so_many_are_named_and_all_are_counted() -> None:
    found = Findings(Path("/s"))
    for _ in range(findings.NAMED_MAX + 5):
        found.report("table", Path("/s/a"), "wrong", "repair it")
    assert len(found.damages) == findings.NAMED_MAX
    assert found.counts["table"] == findings.NAMED_MAX + 5
