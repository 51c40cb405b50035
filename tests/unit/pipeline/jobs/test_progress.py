"""Progress: a bar on a terminal, now and then a line elsewhere, and nothing if nobody wants it."""

import io

import pytest

from rockhopper.pipeline.jobs.progress import JobProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_log_gets_a_line_for_each_step_and_one_every_ten_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = JobProgress(stream, clock=clock)
    progress.step("reading", 2000)
    for _ in range(9):
        progress.advance(100)
        clock.now_s += 2
    progress.step("writing")
    clock.now_s += 10
    progress.advance(note="file 7")
    assert stream.getvalue().splitlines() == [
        "reading",
        "reading: 600 of 2,000",
        "writing",
        "writing (file 7): 1",
    ]


def test_what_is_said_is_a_line_of_its_own() -> None:
    stream = io.StringIO()
    JobProgress(stream).say("done [not markup]")
    assert stream.getvalue() == "done [not markup]\n"


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal(), None])
def test_nothing_is_shown_to_who_does_not_want_it(stream: io.StringIO | None) -> None:
    with JobProgress(stream, is_wanted=False) as progress:
        progress.step("reading", 3)
        progress.advance()
        progress.say("so far")
    assert stream is None or stream.getvalue() == ""


def test_a_terminal_has_a_bar_that_goes_away_and_what_was_said_stays() -> None:
    stream = Terminal()
    with JobProgress(stream) as progress:
        progress.step("reading", 3)
        progress.advance()
        progress.say("found [something]")
        progress.step("writing")
        progress.reach(2, "file 7")
    shown = stream.getvalue()
    assert "found [something]" in shown
    assert shown.endswith("\x1b[2K"), "the bar is wiped out"
    progress.close()
    assert stream.getvalue() == shown
