import sys

import pytest

from rockhopper.broker.tools.progress import Bar


def test_nothing_is_drawn_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar("Checking", 0, 100) as bar:
        bar.set_position(50)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Bar("Checking", 100, 400) as bar:
        bar.set_position(150)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Checking" in err
    assert "50/300 bytes" in err


def test_one_without_an_end_says_that_something_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Bar("Building queues"):
        pass
    assert "Building queues" in capsys.readouterr().err
