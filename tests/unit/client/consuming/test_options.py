"""The options of consumers and subscribers, and the errors that name wrong ones."""

import inspect
from dataclasses import fields
from typing import Any

import pytest

import rockhopper
from rockhopper import App, Consumer
from rockhopper.client.consuming.options import ConsumerOptions, SubscriberOptions


@pytest.mark.parametrize(
    ("taker", "options"),
    [
        (Consumer, ConsumerOptions),
        (rockhopper.sync.Consumer, ConsumerOptions),
        (App().subscriber, SubscriberOptions),
    ],
)
def test_the_parameters_of_a_consumer_are_its_options(taker: Any, options: type[Any]) -> None:
    shown = inspect.signature(taker).parameters
    assert {name: each.default for name, each in shown.items()} == {
        name: each.default for name, each in inspect.signature(options).parameters.items()
    }
    assert set(shown) == {each.name for each in fields(options)}


def test_a_slip_gets_the_nearest_name() -> None:
    with pytest.raises(TypeError, match=r"^Consumer has no parameter 'ordrely': did you mean"):
        Consumer("billing", "orders", ordrely=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^App.subscriber has no parameter 'nameserver'$"):
        App().subscriber("orders", group="billing", nameserver="")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^Consumer: missing a required argument: 'topics'$"):
        Consumer("billing")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["on_assigned", "on_revoked", "handler"])
def test_a_plain_function_is_refused_as_a_callback(name: str) -> None:
    plain: Any = print
    with pytest.raises(TypeError, match=name):
        Consumer("billing", "orders", **{name: plain})


def test_a_topic_that_nothing_could_be_sent_to_is_refused() -> None:
    with pytest.raises(ValueError, match="the topic 'a b' contains characters"):
        App().subscriber("orders", group="billing", to="a b")
