"""rockhopper.sync: every public name of the asynchronous clients is there, with its parameters."""

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest

from rockhopper import client, sync

REMEDY = "wrap it: name = waits(Client.name), in the module of client/sync that has its class"
NOT_FOR_THREADS = {"session", "engine", "sender", "requests", "trace", "adoptions", "tasks"}
NOT_FOR_THREADS |= {"join", "leave", "has_checker"}  # of Connections: what clients call


def public(cls: type) -> set[str]:
    """The public names, without the parts that an object makes when they are used."""
    names = {each for each in dir(cls) if not each.startswith("_")} - NOT_FOR_THREADS
    return {
        each for each in names if not isinstance(inspect.getattr_static(cls, each), cached_property)
    }


def parameters(function: Callable[..., Any]) -> list[tuple[str, object, object]]:
    signature = inspect.signature(function)
    return [(each.name, each.kind, each.default) for each in signature.parameters.values()]


@pytest.mark.parametrize("name", sync.__all__)
def test_every_name_and_parameter_is_there(name: str) -> None:
    there, here = getattr(client, name), getattr(sync, name)
    assert parameters(here) == parameters(there)
    names = public(there)
    assert names - set(dir(here)) == set(), REMEDY
    for each in names:
        theirs, ours = getattr(there, each), getattr(here, each)
        assert callable(ours) == callable(theirs), each
        if callable(theirs):
            assert parameters(ours) == parameters(theirs), each


@pytest.mark.parametrize("part", ["groups", "dead_letters", "accounts", "offsets"])
def test_parts_of_admin_have_every_name_too(part: str) -> None:
    there = {each for each in dir(getattr(client.Admin(), part)) if not each.startswith("_")}
    assert there - set(dir(getattr(sync.Admin(), part))) - {"address"} == set(), REMEDY
