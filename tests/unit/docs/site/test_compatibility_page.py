"""The page of what is served: made of the tables, up to date, and with nothing left out."""

import pytest

from docs.site import compatibility_page as compatibility
from rockhopper.broker.kernel.processors.unserved import UNSERVED
from rockhopper.broker.processor_table import build_table
from rockhopper.protocol.codes import RequestCode
from tests.support.served_broker import ServedBroker

# What the broker of Apache RocketMQ 5.5.0 has processors for.
APACHE_BROKER = {
    *(10, 11, 12, 14, 15, 17, 18, 21, 25, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 41, 42),
    *(43, 45, 46, 60, 61, 200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 225, 300, 303, 305),
    *(306, 307, 308, 309, 310, 314, 315, 316, 317, 320, 321, 323, 324, 325, 328, 329, 343, 345),
    *(351, 352, 353, 354, 355, 361, 370, 400, 401, 402, 513, 905, 906, 907, 908, 1007, 1008),
    *(2001, 2002, 2003, 2004, *range(3001, 3011), 5001, *range(200_050, 200_057)),
    *(*range(200_070, 200_073), *range(200_074, 200_080), 200_151),
}


def test_the_page_is_up_to_date() -> None:
    current = compatibility.PAGE.read_text(encoding="utf-8")
    assert compatibility.page(current) == current, "run `make compatibility`"


def test_the_table_of_ours_is_up_to_date() -> None:
    current = compatibility.OWN_PAGE.read_text(encoding="utf-8")
    assert compatibility.own_page(current) == current, "run `make compatibility`"


def test_each_code_of_ours_says_what_it_does() -> None:
    ours = {code.name for code in RequestCode if 70_000 < code < 80_000}
    assert set(compatibility.own_codes()) == ours
    assert "| 70003 | `SINK_PUBLISH` | makes the parts" in compatibility.own_table()


def test_a_right_is_what_the_row_needs() -> None:
    assert "| 11 | `PULL_MESSAGE` | Topic Sub, Group Sub | broker |" in compatibility.generated()
    assert (
        "| 17 | `UPDATE_AND_CREATE_TOPIC`* | Topic Create | broker |" in compatibility.generated()
    )


async def test_the_tables_are_those_of_a_broker(broker: ServedBroker) -> None:
    assert set(compatibility.broker_table()) == set(build_table(broker))


def test_each_code_is_served_or_listed() -> None:
    served = set(compatibility.broker_table()) | set(compatibility.name_service_table())
    listed = {code for row in UNSERVED for code in row.codes}
    assert served & listed == set()
    assert APACHE_BROKER - served - listed == set()
    assert len(UNSERVED) <= 10


def test_what_is_written_by_hand_stays() -> None:
    text = f"by hand\n{compatibility.MARKER}old"
    assert compatibility.page(text).startswith(f"by hand\n{compatibility.MARKER}\n## ")


@pytest.mark.parametrize("row", UNSERVED)
def test_each_row_says_who_misses_it(row: tuple[range, str, str]) -> None:
    assert row[1]
    assert row[2].endswith(".")
