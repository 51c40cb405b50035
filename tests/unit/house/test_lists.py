"""Lists by hand."""

from pathlib import Path

import pytest

from tests.house import lists
from tests.house.tree import Tree
from tests.support.small_house import house

NAMES = [f"P{n}" for n in range(8)]
PARTS = "class Part: ...\n" + "".join(f"class {name}(Part): ...\n" for name in NAMES)
ALL = ", ".join(NAMES)
MADE = "".join(f"        self.{name.lower()} = {name}()\n" for name in NAMES)
LAST_SEVEN = ", ".join(f"x.{name.lower()}" for name in NAMES[1:])
NAMED = ", ".join(f"x.{name.lower()}" for name in NAMES)


def listed(tree: Tree) -> list[str]:
    return lists.places(lists.find_entries(tree))


def test_a_class_that_makes_eight_parts_of_others_lists_them(tmp_path: Path) -> None:
    text = "class Broker:\n    def build(self):\n" + MADE
    tree = house(tmp_path, broker__parts__all=PARTS, broker__app=text)
    assert listed(tree) == ["broker/app.py Broker makes 8"]


def test_seven_are_few_and_own_ones_are_no_list(tmp_path: Path) -> None:
    few = "class Broker:\n    def build(self):\n" + "".join(MADE.splitlines(keepends=True)[:7])
    tree = house(
        tmp_path,
        broker__parts__all=PARTS,
        broker__app=few,
        broker__parts__own="class All:\n    def build(self):\n" + MADE,
    )
    assert listed(tree) == []
    assert len(lists.made_or_named(lists.find_entries(tree))) == 7


def test_a_class_that_declares_them_lists_them(tmp_path: Path) -> None:
    text = "class Parts:\n" + "".join(f"    {name.lower()}: {name} | None\n" for name in NAMES)
    tree = house(tmp_path, broker__parts__all=PARTS, broker__app=text)
    assert listed(tree) == ["broker/app.py Parts declares 8"]


@pytest.mark.parametrize(
    "text",
    [
        f"def f(x):\n    return ({NAMED})\n",
        f"def f(x):\n    return [{NAMED}]\n",
        f"def every(*parts): ...\ndef f(x):\n    every({NAMED})\n",
        f"class Every:\n    def __init__(self, *parts): ...\ndef f(x):\n    Every({NAMED})\n",
        f"def f(x):\n    return (x.p0, x.p1)\ndef g(x):\n    return ({LAST_SEVEN})\n",
    ],
)
def test_attributes_that_hold_parts_are_named_side_by_side(tmp_path: Path, text: str) -> None:
    holder = "class Broker:\n    def build(self):\n" + MADE
    tree = house(tmp_path, broker__parts__all=PARTS, broker__parts__own=holder, broker__app=text)
    assert listed(tree) == ["broker/app.py module names 8"]


def test_a_call_with_fixed_parameters_uses_parts_and_lists_none(tmp_path: Path) -> None:
    holder = "class Broker:\n    def build(self):\n" + MADE
    text = f"def use(p0, p1): ...\ndef f(x):\n    use({NAMED})\n"
    tree = house(tmp_path, broker__parts__all=PARTS, broker__parts__own=holder, broker__app=text)
    assert listed(tree) == []


def test_codes_that_lead_to_own_methods_are_no_list(tmp_path: Path) -> None:
    rows = ", ".join(f"Code.C{n}: serves({{0}}.f{n})" for n in range(8))
    head = "from rockhopper.protocol.codes import RequestCode as Code\n"
    tree = house(
        tmp_path,
        broker__table=head + f"def rows(x):\n    return {{{rows.format('x')}}}\n",
        broker__own=head
        + f"class P:\n    def rows(self):\n        return {{{rows.format('self')}}}\n",
    )
    assert listed(tree) == ["broker/table.py module names 8"]


def test_a_list_in_pieces_has_as_many_entries(tmp_path: Path) -> None:
    pieces = {
        f"broker__piece_{n}": f"class C{n}:\n    def build(self):\n        self.x = {name}()\n"
        for n, name in enumerate(NAMES)
    }
    tree = house(tmp_path, broker__parts__all=PARTS, **pieces)
    assert listed(tree) == []
    assert len(lists.made_or_named(lists.find_entries(tree))) == 8


def test_the_list_of_declared_features_is_a_list(tmp_path: Path) -> None:
    features = {
        f"broker__features__{name.lower()}__f": (
            f"class {name}:\n    name = '{name}'\n    requires = tests = ()\nclass Helper: ...\n"
        )
        for name in NAMES
    }
    text = "FEATURES = [" + ", ".join(f"{name}()" for name in NAMES) + ", Helper()]\n"
    tree = house(tmp_path, broker__app=text, **features)
    assert listed(tree) == ["broker/app.py module makes 8"]
    assert lists.made_or_named(lists.find_entries(tree)) == []
