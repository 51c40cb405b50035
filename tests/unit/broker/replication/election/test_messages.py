"""Every message can be sent."""

from typing import get_args

from rockhopper.broker.replication.election import messages


def test_the_union_of_messages_has_them_all() -> None:
    made = {
        each
        for each in vars(messages).values()
        if isinstance(each, type) and each.__module__ == messages.__name__
    }
    assert made == set(get_args(messages.Message))
