"""What promises state leaves only while nobody else can lead the set."""

from rockhopper.broker.store.files.errors import NotReplicatedError, StoreError
from rockhopper.broker.store.lease_gate import LeaseGate


class Held:
    """A gate that a test opens, and what it let go of."""

    def __init__(self) -> None:
        self.is_open = False
        self.gate = LeaseGate(lambda: self.is_open, 3000)
        self.released: list[StoreError | None] = []

    def hold(self) -> None:
        self.gate.hold(self.released.append)


async def test_what_is_held_is_let_go_of_when_the_gate_opens() -> None:
    held = Held()
    held.hold()
    held.gate.look()
    assert held.released == []
    held.is_open = True
    held.gate.look()
    assert held.released == [None]
    held.gate.close()


async def test_a_master_that_resigns_refuses_until_it_is_elected_again() -> None:
    held, error = Held(), NotReplicatedError("another one leads")
    held.hold()
    held.gate.refuse(error)
    held.hold()
    assert held.released == [error, error]
    held.gate.hold_responses()
    held.hold()
    assert len(held.released) == 2
    held.gate.close()
