"""Tables on terminals of any width."""

import pytest

from rockhopper.client.commands.screen.fitting import count_cells, fit_table, shorten

COLUMNS = ("TOPIC", "BROKER", "QUEUE", "END", "CONSUMED", "LAG", "LAST CONSUMED", "OWNER")
TIME = "2026-11-20 12:04:09.802"


def rows(topic: str) -> list[list[str]]:
    return [[topic, "broker-a", "0", "1,000,000", "999,999", "1", TIME, "10.0.0.1@4711#5"]]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 132, 200])
@pytest.mark.parametrize("topic", ["orders", "a." + "long-name-" * 12 + ".z", "注文" * 60])
def test_no_column_is_lost_and_no_line_is_too_long(width: int, topic: str) -> None:
    head, lines = fit_table(COLUMNS, rows(topic), width)
    assert all(count_cells(line) <= width for line in head + lines)
    assert " ".join(head).split() == " ".join(COLUMNS).split()
    shown = "  ".join(lines)
    for whole in ("1,000,000", "999,999", TIME, "broker-a"):
        assert whole in shown
    assert topic[0] in shown


def test_a_name_loses_its_middle_and_keeps_both_ends() -> None:
    assert shorten("orders.europe.invoices.v2", 11) == "order…es.v2"
    assert shorten("orders", 6) == "orders"
    assert count_cells(shorten("注文" * 20, 11)) <= 11


def test_ids_stay_whole_however_narrow_it_is() -> None:
    message_id = "C0000202585304E6B092652FA22F0002"
    _, lines = fit_table(("ID", "TOPIC", "BODY"), [[message_id, "t" * 90, "b" * 90]], 50)
    assert message_id in lines[0]


def test_names_of_settings_stay_whole() -> None:
    name = "notifyConsumerIdsChangedEnable"
    _, lines = fit_table(("SETTING", "VALUE", "DEFAULT"), [[name, "v" * 90, "d" * 90]], 50)
    assert lines[0].startswith(name)


def test_a_line_that_would_be_blank_is_left_out() -> None:
    rows = [["a" * 18, "b" * 18, ""], ["a" * 18, "b" * 18, "c" * 18]]
    _, lines = fit_table(("A", "B", "NOTE"), rows, 45)
    assert len(lines) == 3


def test_without_a_terminal_everything_is_there() -> None:
    rows = [["x" * 300, "y" * 300], ["x", "y"]]
    head, lines = fit_table(("A", "B"), rows, None)
    assert lines == ["x" * 300 + "  " + "y" * 300, "x" + " " * 41 + "y"]
    assert head == ["A" + " " * 41 + "B"]


def test_a_table_without_rows_has_a_head() -> None:
    assert fit_table(("A", "B"), [], 80) == (["A  B"], [])


def test_text_at_the_end_goes_below_its_row_where_it_does_not_fit() -> None:
    detail = "given up 2026-11-20 12:04:09.802; sent back 16 times by a consumer of this group"
    columns, rows = (
        ("GROUP", "STATE", "DETAIL"),
        [["b" * 18, "dead letter", detail], ["a", "b", "-"]],
    )
    head, lines = fit_table(columns, rows, 60, ends_in_text=True)
    assert head == ["GROUP               STATE", "  DETAIL"]
    assert lines[0].split() == ["b" * 18, "dead", "letter"]
    assert " ".join(line.strip() for line in lines[1:-1]) == detail
    assert all(line.startswith("  ") and len(line) <= 60 for line in lines[1:-1])
    assert lines[-1].split() == ["a", "b"]
    assert fit_table(columns, rows, 200, ends_in_text=True) == fit_table(columns, rows, 200)
