"""The command ``rebuild``: all that it takes reaches the job."""

import pytest

from tests.support.called_jobs import call


def test_everything_typed_reaches_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = "--output out --queue-file-size 20k --batch-queue-file-size 46k --index-tags"
    result, asked = call(monkeypatch, "rebuild", "store", *flags.split())
    assert result.exit_code == 0, result.output
    assert (asked["path"], asked["output"], asked["in_place"]) == ("store", "out", False)
    assert asked["queue_file_size"] == 20 << 10
    assert asked["batch_queue_file_size"] == 46 << 10
    assert (asked["split_size"], asked["index_tags"]) == (None, True)


def test_in_place_is_a_wish_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = call(monkeypatch, "rebuild", "store", "--in-place")
    assert (asked["output"], asked["in_place"]) == (None, True)
