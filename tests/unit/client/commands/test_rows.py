"""The lines that `rockhopper pull` prints on a terminal."""

from rockhopper.client.commands.rows import format_row

FIRST = ("broker-a:1", "0", "2026-11-20 12:04:09.802")
START = "broker-a:1            0  2026-11-20 12:04:09.802  new       o-1           "
NARROW = "broker-a:1            0  2026-11-20 12:04:09.802  new   o-1    "


def test_a_row_without_a_terminal_holds_all_of_the_body() -> None:
    assert format_row(*FIRST, "new", "o-1", "x" * 300) == START + "x" * 300


def test_a_row_is_cut_to_the_terminal() -> None:
    assert format_row(*FIRST, "new", "o-1", "x" * 300, width=132) == START + "x" * 57 + "…"


def test_a_narrow_terminal_shows_the_body_in_a_line_of_its_own() -> None:
    lines = format_row(*FIRST, "new", "o-1", "x" * 300, width=80).split("\n")
    assert lines == [NARROW.rstrip(), "  " + "x" * 77 + "…"]
    long = format_row(*FIRST, "new", "k" * 100, "x", width=80).split("\n")
    assert [len(line) <= 80 for line in long] == [True] * 3
    assert long[1].startswith("  new  kkk")


def test_a_short_body_stays_in_the_line_of_its_message() -> None:
    assert format_row(*FIRST, "new", "o-1", "x" * 17, width=80) == NARROW + "x" * 17
    assert (
        format_row(*FIRST, "new", "o-1", "x" * 18, width=80) == f"{NARROW.rstrip()}\n  {'x' * 18}"
    )


def test_a_terminal_too_narrow_for_lines_still_shows_something_of_the_body() -> None:
    assert format_row(*FIRST, "new", "o-1", "x" * 300, width=20) == NARROW + "x" * 39 + "…"


def test_columns_stay_below_each_other_whatever_the_script() -> None:
    # Two columns of the terminal each: as wide as "new       o-1           ".
    assert (
        format_row(*FIRST, "日本", "キー", "x")
        == START[:50] + "日本" + " " * 6 + "キー" + " " * 10 + "x"
    )
