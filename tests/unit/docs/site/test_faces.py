"""The pages of classes show what they have, as it is called."""

import inspect
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("griffe", reason="the site is built with the extra [docs]")

from griffe import DocstringSectionKind, GriffeLoader, load_extensions

import rockhopper
from docs.site.faces import Faces
from rockhopper.client.consuming.options import ConsumerOptions, SubscriberOptions

pytestmark = pytest.mark.costly


@pytest.fixture(scope="module")
def shown() -> Any:
    """The package as the site reads it."""
    root = Path(rockhopper.__file__).parents[1]
    loader = GriffeLoader(search_paths=[root], extensions=load_extensions("dataclasses", Faces))
    return loader.load("rockhopper", try_relative_path=False)


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


def test_bases_that_nobody_can_import_are_left_out(shown: Any) -> None:
    hides = {
        name: shown[f"client.{name}"].extra["site"]["hides_bases"]
        for name in ("Producer", "TransactionProducer")
    }
    assert hides == {"Producer": True, "TransactionProducer": False}
