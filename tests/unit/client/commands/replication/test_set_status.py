"""`rockhopper ha status` of a set: what it shows of a status as brokers give it."""

from typing import Any

import pytest

from rockhopper.client.commands.replication import set_status


def a_status() -> dict[str, Any]:
    one = {
        "id": 1,
        "address": "b1:10911",
        "isRunning": True,
        "isMaster": True,
        "isInSync": True,
        "isClean": True,
        "logEnd": 1000,
    }
    two = one | {"id": 2, "address": "b2:10911", "isMaster": False, "heldOffset": 900}
    gone = {"id": 3, "address": "", "isRunning": False, "isMaster": False, "isInSync": False}
    return {
        "epoch": 4,
        "masterId": 1,
        "minInSyncReplicas": 2,
        "logEnd": 1000,
        "asked": "b1:10911",
        "replicas": [one, two, gone],
        "alarms": ["the engine is away"],
        "history": [{"epoch": 4, "masterId": 1, "why": "first start"}],
    }


def test_who_leads_who_lags_and_who_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    set_status.show(a_status())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "epoch 4: replica 1 leads; 2 of 3 in sync, at least 2 must be (asked b1:10911)"
    )
    assert lines[2].split() == ["1", "b1:10911", "master", "yes", "yes", "1,000", "0"]
    assert lines[3].split() == ["2", "b2:10911", "follower", "yes", "yes", "1,000", "100"]
    assert lines[4].split() == ["3", "-", "away", "no", "-", "-", "-"]
    assert "ALARM  the engine is away" in lines
    assert "  epoch 4: replica 1, first start" in lines


def test_a_set_without_a_master(capsys: pytest.CaptureFixture[str]) -> None:
    set_status.show(a_status() | {"masterId": 0, "history": [], "alarms": []})
    assert "replica nobody leads" in capsys.readouterr().out
