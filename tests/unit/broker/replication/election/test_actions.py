"""Every action can be asked for."""

from typing import get_args

from rockhopper.broker.replication.election import actions


def test_the_union_of_actions_has_them_all() -> None:
    made = {
        each
        for each in vars(actions).values()
        if isinstance(each, type) and each.__module__ == actions.__name__
    }
    assert made == set(get_args(actions.Action))
