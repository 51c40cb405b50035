"""The figures of the house, on houses of a few lines."""

from pathlib import Path

import pytest

from tests.house import figures
from tests.house.__main__ import is_worse
from tests.house.figures import Figure
from tests.house.tree import Tree


def house(root: Path, **files: str) -> Tree:
    """A checkout with these modules, by their dotted names with ``__`` for the dots."""
    for name, text in files.items():
        home = root if name.startswith("tests__") else root / "rockhopper"
        path = home / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(root)


def test_lines_of_code_are_neither_blank_nor_comments_nor_docstrings(tmp_path: Path) -> None:
    text = (
        '"""Doc.\n\nMore.\n"""\n\n# why\nx = (\n    1,\n)  # here\n\n'
        'def f():\n    "Doc."\n    return """a\nb"""\n'
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
        "a <-> b",
        "client.x <-> client.y",
    ]


def test_parameters_are_counted_without_self(tmp_path: Path) -> None:
    eight = ", ".join(f"p{n}" for n in range(8))
    text = f"class C:\n    def f(self, {eight}): ...\n    def g(self, {eight}, *, last): ...\n"
    assert list(figures.wide(house(tmp_path, client__x=text))) == ["client/x.py:3 g: 9"]


def test_doors_may_speak_of_codes_and_others_may_not(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("value", "more", "worse"),
    [(5, False, False), (6, False, True), (5, True, False), (4, True, True)],
)
def test_worse_is_the_wrong_side_of_the_bound(value: float, more: bool, worse: bool) -> None:
    assert is_worse(Figure("f", "f", value, (), more), 5) is worse
