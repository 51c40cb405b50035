"""The options of subscribers: those of Consumer, and told at the decorator where they are wrong."""

import inspect

import pytest

from rockhopper import App, Consumer
from rockhopper.client.app.options import ConsumerOptions, check_options

CHOSEN_BY_THE_APP = {"group", "topics", "nameserver", "handler"}
NAMED_BY_THE_DECORATOR = {"concurrency"}


def test_they_are_those_of_a_consumer() -> None:
    ours = {name: str(each) for name, each in ConsumerOptions.__annotations__.items()}
    parameters = inspect.signature(Consumer).parameters.values()
    theirs = {each.name: str(each.annotation) for each in parameters}
    for name in CHOSEN_BY_THE_APP | NAMED_BY_THE_DECORATOR:
        del theirs[name]
    assert ours == theirs


def test_a_slip_gets_the_nearest_name() -> None:
    with pytest.raises(TypeError, match=r"no option 'ordrely': did you mean 'orderly'\?$"):
        App().subscriber("orders", group="billing", ordrely=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"no option 'nameserver'$"):
        check_options(["nameserver"])


def test_a_topic_that_nothing_could_be_sent_to_is_refused() -> None:
    with pytest.raises(ValueError, match="the topic 'a b' contains characters"):
        App().subscriber("orders", group="billing", to="a b")
