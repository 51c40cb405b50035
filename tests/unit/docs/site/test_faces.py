"""The page of the synchronous clients shows what they have, as it is called."""

import inspect
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("griffe", reason="the site is built with the extra [docs]")

from griffe import DocstringSectionKind, GriffeLoader, load_extensions

import rockhopper
from docs.site.faces import Faces
from rockhopper import sync
from rockhopper.client.consuming.options import ConsumerOptions, SubscriberOptions

pytestmark = pytest.mark.costly


@pytest.fixture(scope="module")
def shown() -> Any:
    """The package as the site reads it."""
    root = Path(rockhopper.__file__).parents[1]
    loader = GriffeLoader(search_paths=[root], extensions=load_extensions("dataclasses", Faces))
    return loader.load("rockhopper", try_relative_path=False)


@pytest.mark.parametrize("name", sync.__all__)
def test_each_public_method_is_described_with_its_parameters(shown: Any, name: str) -> None:
    described = shown[f"client.sync.{name}"].all_members
    there = {each for each in dir(getattr(sync, name)) if not each.startswith("_")}
    there.remove("closes_last")
    assert {each for each in there if not described[each].docstring} == set()
    init = described["__init__"]
    assert init.docstring
    taken = inspect.signature(getattr(sync, name)).parameters
    assert [each.name for each in init.parameters] == ["self", *taken]


@pytest.mark.parametrize(
    ("path", "options"),
    [("Consumer.__init__", ConsumerOptions), ("App.subscriber", SubscriberOptions)],
)
def test_options_are_shown_as_parameters(shown: Any, path: str, options: type[Any]) -> None:
    cls, method = path.split(".")
    described = shown[cls].final_target.all_members[method]
    taken = inspect.signature(options).parameters
    assert [each.name for each in described.parameters] == ["self", *taken]
    (listed,) = (
        each.value
        for each in described.docstring.parse("google")
        if each.kind is DocstringSectionKind.parameters
    )
    assert [each.name for each in listed] == list(taken)
    assert {each.name for each in listed if not each.description} == set()


def test_what_is_waited_for_is_shown_as_it_comes(shown: Any) -> None:
    consumer = shown["client.sync.Consumer"].all_members
    assert str(consumer["batches"].returns) == "Iterator[list[ReceivedMessage]]"
    send = shown["client.sync.Producer"].all_members["send"]
    assert (str(send.returns), send.labels) == ("SendReceipt", set())


def test_a_check_is_shown_as_the_plain_function_that_it_is(shown: Any) -> None:
    init = shown["client.sync.TransactionProducer"].all_members["__init__"]
    check = init.parameters["check"].annotation
    assert check.canonical_path == "rockhopper.client.sync.producers.Check"


def test_bases_that_nobody_can_import_are_left_out(shown: Any) -> None:
    hides = {
        name: shown[f"client.{name}"].extra["site"]["hides_bases"]
        for name in ("Producer", "TransactionProducer", "sync.Consumer")
    }
    assert hides == {"Producer": True, "TransactionProducer": False, "sync.Consumer": True}
