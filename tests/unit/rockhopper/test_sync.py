"""rockhopper.sync: every public name of the asynchronous clients is there."""

import pytest

from rockhopper import client, sync

REMEDY = "wrap it: name = waits(Client.name), in the module of client/sync that has its class"
NOT_FOR_THREADS = {"session", "engine", "sender", "requests", "trace", "adoptions", "tasks"}


@pytest.mark.parametrize(
    "name", ["Producer", "TransactionProducer", "Consumer", "PullConsumer", "Admin"]
)
def test_every_name_is_there(name: str) -> None:
    there = {each for each in dir(getattr(client, name)) if not each.startswith("_")}
    here = set(dir(getattr(sync, name)))
    assert there - here - NOT_FOR_THREADS - {"send_in_transaction"} == set(), REMEDY


@pytest.mark.parametrize("part", ["groups", "dead_letters", "accounts", "offsets"])
def test_parts_of_admin_have_every_name_too(part: str) -> None:
    there = {each for each in dir(getattr(client.Admin(), part)) if not each.startswith("_")}
    assert there - set(dir(getattr(sync.Admin(), part))) - {"address"} == set(), REMEDY
