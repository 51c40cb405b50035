"""Kept runs: what is made of their samples, and files of before."""

import json
from dataclasses import replace
from pathlib import Path

from benchmarks import results
from benchmarks.cases import BASE, FEW_IN_FLIGHT
from benchmarks.results import OURS
from tests.support.bench_runs import ORIGIN, run_of, sample, whole_run


def test_a_run_is_read_as_it_was_kept(tmp_path: Path) -> None:
    found = whole_run()
    (tmp_path / "some.json").write_text(results.as_json(found))
    assert results.read(str(tmp_path / "some.json")) == found


def test_a_file_of_before_is_one_round_without_an_origin() -> None:
    document = json.loads(results.as_json(run_of([100.0, 300.0])))
    del document["origin"]
    for cases in document["samples"].values():
        for samples in cases.values():
            for each in samples:
                del each["round"]
    found = results.from_json(json.dumps(document))
    assert found.origin is None
    assert found.echo_ratios(BASE) == [0.2]


def test_the_oldest_kept_run_can_be_read() -> None:
    found = results.read("2026-11-20")
    assert found.origin is None
    assert found.of(OURS, "single")


def test_a_ratio_is_made_of_what_ran_in_the_same_round() -> None:
    found = run_of([100.0, 300.0])
    found.add("echo", "echo", sample(3000.0, round=1))
    assert found.echo_ratios(BASE) == [0.1, 0.15]


def test_a_disturbed_sample_counts_only_where_there_is_no_other() -> None:
    found = run_of([100.0, 300.0])
    samples = found.samples[OURS]["single"]
    samples[0] = replace(samples[0], is_quiet=False)
    assert [each.messages_per_s for each in found.of(OURS, "single")] == [300.0]
    assert found.echo_ratios(BASE) == [0.3]
    samples[1] = replace(samples[1], is_quiet=False)
    assert found.echo_ratios(BASE) == [0.1, 0.3]


def test_a_disturbed_echo_is_stood_for_by_that_of_other_rounds() -> None:
    found = run_of([100.0, 300.0])
    samples = found.samples["echo"]["echo"]
    samples[1] = replace(samples[1], messages_per_s=1.0, is_quiet=False)
    assert found.echo_ratios(BASE) == [0.1, 0.3]


def test_a_ratio_is_to_the_echo_of_the_same_shape() -> None:
    (case,) = (case for case in FEW_IN_FLIGHT if case.name == "100x1")
    found = run_of([100.0], case=case.name)
    assert found.echo_ratios(case) == []
    found.add("echo", "echo-100x1", sample(200.0))
    assert found.echo_ratios(case) == [0.5]


def test_without_an_echo_there_is_no_ratio_to_it() -> None:
    found = run_of([100.0])
    del found.samples["echo"]
    assert found.echo_ratios(BASE) == []


def test_the_newest_is_so_by_its_date_and_before_that_by_its_name(tmp_path: Path) -> None:
    for name, found in (
        ("2026-11-20", whole_run(None)),
        ("before-my-change", whole_run()),
        ("2026-11-25", whole_run(None)),
    ):
        (tmp_path / f"{name}.json").write_text(results.as_json(found))
    (tmp_path / "spark-2026-11-30.json").write_text("{}")
    names = [name for name, _ in results.newest_first(tmp_path)]
    assert names == ["2026-11-25", "before-my-change", "2026-11-20"]
    assert ORIGIN.date.startswith("2026-11-24")
