"""What the operator is told after a recovery: each thing once, and no more than can be read."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store.recovering.log_walk import CutTail, Hole
from rockhopper.broker.store.recovering.recovery import RecoveryReport

NOTHING = RecoveryReport(1000, 500, 7, 0, [], None, None, {}, {}, 3, {})


def said(report: RecoveryReport, *, last_exit_clean: bool = True) -> list[Any]:
    """Everything but the summary, which always comes last."""
    with capture_logs() as logs:
        report.log(last_exit_clean=last_exit_clean)
    summary = logs.pop()
    assert summary["event"] == "store recovered"
    assert (summary["log_end"], summary["scanned_from"], summary["records"]) == (1000, 500, 7)
    assert summary["keys_indexed"] == 3
    return logs


def test_where_all_is_well_only_the_summary_is_said() -> None:
    assert said(NOTHING) == []


def test_each_hole_is_named_up_to_a_number() -> None:
    holes = [Hole(10 * n, 10 * n + 5, "torn") for n in range(20)]
    told = said(NOTHING._replace(holes=holes))
    assert [(each["from_offset"], each["to_offset"]) for each in told] == [
        (10 * n, 10 * n + 5) for n in range(20)
    ]
    assert {each["log_level"] for each in told} == {"error"}
    told = said(NOTHING._replace(holes=[*holes, Hole(900, 905, "torn")]))
    assert len(told) == 21
    assert told[-1]["ranges"] == 21


def test_a_lost_end_and_a_torn_end_are_told_apart() -> None:
    (lost,) = said(NOTHING._replace(lost_tail=Hole(10, 20, "gone")))
    assert (lost["log_level"], lost["from_offset"], lost["to_offset"]) == ("error", 10, 20)
    (cut,) = said(NOTHING._replace(cut=CutTail(30, 5, "/quarantine/x")))
    assert (cut["log_level"], cut["from_offset"], cut["size_bytes"]) == ("warning", 30, 5)
    assert cut["kept_as"] == "/quarantine/x"


def test_queues_with_lost_messages_are_named() -> None:
    (told,) = said(NOTHING._replace(lost_messages={("orders", 1): 4}))
    assert told["queues"] == {"orders/1": 4}


@pytest.mark.parametrize("clean", [True, False])
def test_mended_queues_are_news_only_after_a_clean_stop(clean: bool) -> None:
    changed = {("orders", n): n for n in range(30)}
    told = said(NOTHING._replace(changed_queues=changed), last_exit_clean=clean)
    assert len(told) == clean
    if clean:
        assert told[0]["count"] == 30
        assert list(told[0]["queues"]) == [f"orders/{n}" for n in range(20)]
