"""What a comparison with Apache's controller mode makes of what it read."""

from dataclasses import asdict

from benchmarks.ha_beside_apache import Finding, judged, table
from tests.support.steady_sends import Answer, Failure, Sent


def test_a_finding_counts_what_is_lost_repeated_rewritten_and_refused() -> None:
    sent = Sent([Answer(1, 0, 1)], [Failure(5, 0, 3000, "timed out")])
    before = {(0, 0): 1, (0, 1): 2}
    found = {(0, 0): 1, (0, 1): 3, (1, 0): 3}
    assert judged(before, found, {1, 2, 3}, sent, 12.4) == Finding(
        12, 1, acknowledged=3, lost=1, rewritten=1, repeated=1, last_failure="timed out"
    )


def test_what_does_not_go_on_is_a_finding_too() -> None:
    sent = Sent([Answer(1, 0, 1)], [Failure(5, 0, 3000, "timed out")])
    finding = judged({(0, 0): 1}, None, {1}, sent, None)
    assert (finding.pause_ms, finding.failed, finding.lost) == (None, 1, None)
    line = table({"apache java planned": asdict(finding)}).splitlines()[2]
    assert line == "| planned | java | – / not within 90 s | – / 1 | – / ? | – / ? |"


def test_a_place_that_is_gone_is_lost_and_not_rewritten() -> None:
    finding = judged({(0, 0): 1}, {}, {1}, Sent(), 0)
    assert (finding.lost, finding.rewritten) == (1, 0)


def test_the_longest_pause_begins_with_the_last_answer_before_the_fault() -> None:
    answers = [Answer(number, 0, ended) for number, ended in enumerate((0, 500, 510, 800, 820))]
    assert Sent(answers).pause_ms(since_ms=505) == 290
    assert Sent(answers).pause_ms(since_ms=900) == 0


def test_the_table_sets_both_side_by_side_and_leaves_out_what_was_not_measured() -> None:
    done = {"ours java planned": asdict(Finding(100, 0, 1000, 0, 0, 0))}
    both = done | {"apache java planned": asdict(Finding(33_406, 20_622, 900, 0, 0, 0))}
    assert table(done).splitlines()[2:] == ["| planned | java | 100 / – | 0 / – | 0 / – | 0 / – |"]
    assert "| 100 / 33,406 | 0 / 20,622 | 0 / 0 | 0 / 0 |" in table(both)
