"""The progress bar: only for a person, only when it takes long."""

import io
import sys

import pytest

from rockhopper.client.commands.progress import ProgressBar


class Terminal(io.StringIO):
    """Standard error with a person in front of it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rockhopper.client.commands.progress._SHOW_AFTER_S", 0.0)


def watch(monkeypatch: pytest.MonkeyPatch, *, is_wanted: bool = True) -> str:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with ProgressBar("sending to orders", 10, is_wanted=is_wanted) as progress:
        for _ in range(5):
            progress.advance()
    assert progress.done == 5
    return screen.getvalue()


@pytest.mark.usefixtures("slow")
def test_a_person_sees_how_far_long_work_is(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = watch(monkeypatch)
    assert "sending to orders" in shown
    assert "/10" in shown


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(monkeypatch) == ""


@pytest.mark.usefixtures("slow")
def test_nothing_is_shown_where_the_output_scrolls_by(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(monkeypatch, is_wanted=False) == ""


@pytest.mark.usefixtures("slow")
def test_nothing_is_shown_where_nobody_watches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgressBar("sending to orders", 10) as progress:
        progress.advance(10)
    assert capsys.readouterr().err == ""
