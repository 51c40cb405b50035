"""The home of a sink: noted once in the checkpoint, and no other broker goes on in its place."""

import json
from pathlib import Path

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink.home import HOME_FILE, keep_home


def note(directory: Path) -> object:
    return json.loads((directory / HOME_FILE).read_text())


def test_it_is_noted_once_and_agreed_with(tmp_path: Path) -> None:
    keep_home(str(tmp_path), "s", "broker-a")
    assert note(tmp_path) == {"sinkId": "s", "broker": "broker-a"}
    keep_home(str(tmp_path), "s", "broker-a")
    assert note(tmp_path) == {"sinkId": "s", "broker": "broker-a"}


def test_another_broker_is_refused_and_the_remedy_named(tmp_path: Path) -> None:
    keep_home(str(tmp_path), "s", "broker-a")
    with pytest.raises(PipelineError, match=r"published on broker-a, as .*: start broker-a again"):
        keep_home(str(tmp_path), "s", "broker-b")
    assert note(tmp_path) == {"sinkId": "s", "broker": "broker-a"}


def test_the_note_of_another_sink_says_nothing(tmp_path: Path) -> None:
    keep_home(str(tmp_path), "s", "broker-a")
    keep_home(str(tmp_path), "other", "broker-b")


def test_without_a_checkpoint_nothing_is_noted() -> None:
    keep_home("", "s", "broker-a")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"sinkId":"s"}', "null"])
def test_a_damaged_note_says_what_to_write(tmp_path: Path, content: str) -> None:
    (tmp_path / HOME_FILE).write_text(content)
    with pytest.raises(PipelineError, match=r"is damaged .*: write \{.sinkId"):
        keep_home(str(tmp_path), "s", "broker-a")


def test_a_place_that_cannot_be_written_to_costs_only_the_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    keep_home(str(tmp_path / "file"), "s", "broker-a")
    assert "cannot be noted" in caplog.text
