"""The figures of the house, on houses of a few lines."""

import re
from pathlib import Path

import pytest

from tests.house import figures, lists
from tests.house.__main__ import ROOT, is_worse
from tests.support.small_house import house


def test_lines_of_code_are_neither_blank_nor_comments_nor_docstrings(tmp_path: Path) -> None:
    text = (
        '"""Doc.\n\nMore.\n"""\n\n# why\nx = (\n    1,\n)  # here\n\n'
        'def f():\n    r"""Doc."""\n    return """a\nb"""\n'
    )
    (module,) = house(tmp_path, protocol__x=text).modules
    assert module.code_lines == 6


def test_circles_are_found_among_rooms_and_modules(tmp_path: Path) -> None:
    tree = house(
        tmp_path,
        broker__a__one="from rockhopper.broker.b import two\n",
        broker__b__two="",
        broker__b__three="from rockhopper.broker.a import one\n",
        client__x="from rockhopper.client import y\n",
        client__y="from rockhopper.client.x import f\n",
    )
    assert figures.circles(tree) == [
        "broker.a <-> broker.b",
        "client.x <-> client.y",
    ]


def test_gateways_may_speak_of_codes_and_others_may_not(tmp_path: Path) -> None:
    text = "from rockhopper.protocol.codes import ResponseCode\n"
    tree = house(tmp_path, broker__processors__x=text, broker__pop__x=text, client__x=text)
    assert list(figures.wire_names(tree)) == ["broker/pop/x.py: ResponseCode"]


def test_private_members_of_others_are_counted_and_own_ones_are_not(tmp_path: Path) -> None:
    text = (
        "class C:\n    def _own(self):\n        self._x = other._theirs\n\n"
        "def f(c, row):\n    return c._x, c._own(), row._replace(), c.__class__\n"
    )
    assert list(figures.private_members(house(tmp_path, client__x=text))) == [
        "client/x.py:3 _theirs"
    ]


def test_a_value_is_spelt_at_its_home_alone(tmp_path: Path) -> None:
    text = 'TOPIC = "TBW102"\n'
    tree = house(tmp_path, protocol__names=text, broker__topics=text)
    assert list(figures.spelt(tree)) == ["broker/topics.py:1 a default topic's name"]


def test_a_room_is_a_folder_of_the_broker_or_of_a_group_of_rooms(tmp_path: Path) -> None:
    tree = house(
        tmp_path,
        broker__kernel__topics__table="from rockhopper.broker.kernel.send import sender\n",
        broker__kernel__send__sender="",
        broker__kernel__send__checks="from rockhopper.broker.kernel.topics import table\n",
    )
    assert figures.circles(tree) == ["broker.kernel.send <-> broker.kernel.topics"]


def test_rooms_of_one_name_in_two_groups_are_two_rooms(tmp_path: Path) -> None:
    tree = house(
        tmp_path,
        broker__kernel__state="",
        broker__kernel__parts="from rockhopper.broker.kernel import state\n",
        broker__replication__state__writer="from rockhopper.broker.kernel import parts\n",
    )
    assert figures.circles(tree) == []


def test_declared_log_checks_count_as_long_as_they_are_defined(tmp_path: Path) -> None:
    tree = house(tmp_path, broker__store__scrubbing="class Scrub: ...\n", client__x="")
    assert list(figures.log_checks(tree)) == ["scrub: broker/store/scrubbing.py:1 Scrub"]


@pytest.mark.parametrize(
    ("value", "more", "worse"),
    [(5, False, False), (6, False, True), (5, True, False), (4, True, True)],
)
def test_worse_is_the_wrong_side_of_the_bound(value: float, more: bool, worse: bool) -> None:
    assert is_worse(value, {"bound": 5, "more_is_better": more}) is worse


def test_the_classes_that_figures_name_exist() -> None:
    aliases = {"Code"}
    named = figures.WIRE_NAMES | {
        *figures.LOG_CHECKS.values(),
        *lists.THING_BASES,
        *lists.CODE_TYPES,
    }
    texts = (path.read_text() for path in (ROOT / "rockhopper").rglob("*.py"))
    known = {name for text in texts for name in re.findall(r"^ *class (\w+)", text, re.MULTILINE)}
    assert named - aliases - known == set()
