"""Callbacks, whatever they are called."""

from pathlib import Path

import pytest

from tests.house import callbacks
from tests.support.small_house import house

STORE = (
    "from collections.abc import Callable\n"
    "Listener = Callable[[str], None]\n"
    "def _ignore(): ...\n"
    "class Store:\n"
    "    plain: int\n"
    "    def __init__(self, handler: Listener):\n"
    "        self.typed: Callable[[], None] | None = None\n"
    "        self.by_alias: Listener\n"
    "        self.by_default = _ignore\n"
    "        self.handler = handler\n"
    "        self.number = 0\n"
    "        self.listeners: list[Listener] = []\n"
)


def slots(root: Path, assignment: str) -> list[str]:
    text = (
        f"class User:\n    def method(self): ...\n    def f(self, store):\n        {assignment}\n"
    )
    tree = house(root, broker__store=STORE, broker__user=text)
    return callbacks.assigned_slots(tree, callbacks.declared(tree))


@pytest.mark.parametrize(
    "assignment",
    [
        "store.typed = found",
        "store.by_alias = found",
        "store.by_default = found",
        "store.handler = found",
        "store.number = self.method",
        "store.number = lambda: 0",
        "store.number = partial(f, 1)",
        "self.store.typed = found",
        "a, store.typed = 1, found",
    ],
)
def test_a_function_in_an_attribute_of_another_object_is_a_slot(
    tmp_path: Path, assignment: str
) -> None:
    (slot,) = slots(tmp_path, assignment)
    assert slot.endswith(": broker/user.py:4")


@pytest.mark.parametrize(
    "assignment",
    ["store.number = found", "store.typed = None", "self.typed = found", "store.number = self.own"],
)
def test_other_assignments_are_no_slots(tmp_path: Path, assignment: str) -> None:
    assert slots(tmp_path, assignment) == []


def test_two_places_that_assign_one_slot_are_one_slot(tmp_path: Path) -> None:
    assert slots(tmp_path, "store.typed = a; self.store.typed = b") == [
        "store.typed: broker/user.py:4, broker/user.py:4"
    ]


def test_a_method_that_keeps_a_callable_sets_a_slot(tmp_path: Path) -> None:
    text = (
        "from collections.abc import Callable\n"
        "class Store:\n"
        "    def __init__(self, rule: Callable[[], int]): self.rule = rule\n"
        "    def wake_with(self, f: Callable[[], None]): self._f = f\n"
        "    def resize(self, size: int): self.size = size\n"
        "    def each(self, f: Callable[[], None]): f()\n"
    )
    tree = house(tmp_path, broker__store=text)
    found = list(callbacks.slots_set_by_methods(tree, callbacks.declared(tree)))
    assert found == ["broker/store.py:4 Store._f"]


def test_an_alias_counts_where_it_is_imported(tmp_path: Path) -> None:
    head = "from rockhopper.broker.types import Listener\n"
    text = "class A:\n    def __init__(self, f: Listener): ...\n"
    tree = house(
        tmp_path,
        broker__types="Listener = Callable[[], None]\n",
        broker__importing=head + text,
        broker__other="class Listener: ...\n" + text,
    )
    found = list(callbacks.handed_callbacks(tree, callbacks.declared(tree)))
    assert found == ["broker/importing.py:2 A(f)"]


def test_lists_of_listeners_are_counted_apart(tmp_path: Path) -> None:
    text = "def f(store):\n    store.listeners.append(f)\n    store.names.append(f)\n"
    tree = house(tmp_path, broker__store=STORE, broker__user=text)
    known = callbacks.declared(tree)
    assert callbacks.listener_lists(tree, known) == ["listeners, list[Listener]: broker/user.py:2"]
    assert callbacks.assigned_slots(tree, known) == []


def test_a_list_of_listeners_is_one_however_it_is_reached_and_whatever_it_holds(
    tmp_path: Path,
) -> None:
    stores = (
        "from collections.abc import Callable\n"
        "class A:\n    on_close: 'list[Callable[[], None]]'\n"
        "class B:\n    def __init__(self):\n        self.on_close: list[Callable[[], None]] = []\n"
        "class C:\n    listeners: set[StoreListener]\n"
        "class D:\n    listeners: list[TopicListener]\n"
        "class E:\n    listeners: list[int]\n"
    )
    text = (
        "def f(a, b, c, d):\n    a.on_close.append(f)\n    b.on_close.append(f)\n"
        "    c.listeners.add(f)\n    d.listeners.append(f)\n"
    )
    tree = house(tmp_path, broker__store=stores, broker__user=text)
    assert callbacks.listener_lists(tree, callbacks.declared(tree)) == [
        "listeners, list[TopicListener]: broker/user.py:4, broker/user.py:5",
        "listeners, set[StoreListener]: broker/user.py:4, broker/user.py:5",
        "on_close, list[Callable[[], None]]: broker/user.py:2, broker/user.py:3",
    ]


def test_what_returns_nothing_is_called_back_and_the_rest_is_asked(tmp_path: Path) -> None:
    text = (
        "from collections.abc import Callable\n"
        "Listener = Callable[[str], None]\n"
        "class A:\n"
        "    def __init__(self, done: Listener, now_ms: Callable[[], int], call_later: Listener,\n"
        "                 many: list[Listener], failed: 'Callable[[], object]', size: int): ...\n"
        "@dataclass\n"
        "class B:\n"
        "    saved: Callable[[], Awaitable[None]]\n"
    )
    tree = house(tmp_path, broker__a=text)
    known = callbacks.declared(tree)
    assert list(callbacks.handed_callbacks(tree, known)) == [
        "broker/a.py:3 A(done)",
        "broker/a.py:3 A(failed)",
        "broker/a.py:7 B(saved)",
    ]
    assert list(callbacks.handed_questions(tree, known)) == ["broker/a.py:3 A(now_ms)"]
