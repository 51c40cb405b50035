"""Synchronous clients that share connections, in a forked child and at the end as well."""

import sys

import pytest

from rockhopper import ThreadedBroker
from rockhopper.sync import Admin, Connections, Consumer, Producer
from tests.unit.client.sync.test_loop_thread import run

FORK_AND_EXIT = """
import os
from rockhopper.sync import Connections, Producer

def say(*words):
    # In one write: lines of two processes do not mix.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

shared = Connections()
used, unopened = Producer(connections=shared), Producer(connections=shared)
say("parent", used.send("orders", b"x").queue.topic)
child = os.fork()
for producer in (used, unopened):
    say(child == 0, producer.send("orders", b"y").queue.topic)
say(child == 0, len(shared.current().sharers))
if child:
    say(os.waitpid(child, 0)[1])
"""

EXIT = """
from rockhopper.sync import Connections, Consumer, Producer

shared = Connections()
Producer(connections=shared).send("orders", b"x")
consumers = [Consumer(f"g{each}", "orders", connections=shared) for each in range(3)]
for consumer in consumers:
    next(iter(consumer))
"""


def test_all_go_through_one_connection(broker: ThreadedBroker) -> None:
    with Connections() as shared, Producer(connections=shared) as producer:
        producer.send("orders", b"x")
        with Consumer("billing", "orders", connections=shared) as consumer:
            for message in consumer:
                assert message.body == b"x"
                break
        assert Admin(connections=shared).topics()
        addresses = {each.address for each in shared.current().pool.connections}
        assert addresses == {broker.address, broker.nameserver}
        producer.send("orders", b"the consumer that has left took none of them along")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_shares_connections_of_its_own(broker: ThreadedBroker) -> None:
    code, out, err = run(FORK_AND_EXIT)
    assert (code, err) == (0, "")
    each = ["orders", "orders", "2"]
    expected = [f"{is_child} {text}" for is_child in (False, True) for text in each]
    assert sorted(out.splitlines()) == sorted(["parent orders", "0", *expected])


def test_what_shares_them_is_closed_before_them_at_exit(broker: ThreadedBroker) -> None:
    # What a loop has in work is committed by closing, and that it could not be is logged.
    assert run(EXIT) == (0, "", "")
