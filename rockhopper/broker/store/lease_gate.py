"""LeaseGate: answers that promise state leave a replica only while nobody else can lead its set.

What the log promises needs no gate: a send is answered when every replica in sync holds its
message. Offsets, acknowledgements and locks are applied at once, and the replicas get them a
moment later. A master that was cut off, or stood still, would go on promising them while another
one leads:

    a commit comes, the gate is open     answered at once
    the master is cut off                what changes is not confirmed: its answers are held
    it is confirmed after all            they leave
    slaveTimeout passes, or it resigns   they leave as FLUSH_SLAVE_TIMEOUT: the client asks again

The question is asked when an answer is written, not when its request is served: a process may stand
still in between. A broker that is in no set has no gate.
"""

from collections.abc import Callable

from rockhopper.broker.store.files.errors import NotReplicatedError, StoreError
from rockhopper.broker.store.flush import ParkedAnswers, Release


class LeaseGate:
    """Belongs to the event loop."""

    def __init__(self, is_open: Callable[[], bool], timeout_ms: int) -> None:
        """*is_open*: whether what is promised now outlives this master; asked for each answer."""
        self.is_open = is_open
        self._held = ParkedAnswers(timeout_ms, _why_not)
        self._refusal: StoreError | None = None

    def hold(self, release: Release) -> None:
        """Call *release* when the gate is open, or with why it did not open in time."""
        if self._refusal is None:
            self._held.park(0, release)
        else:
            release(self._refusal)

    def look(self) -> None:
        """Let go of what is held if the gate is open by now."""
        if self._held and self.is_open():
            self._held.release(0)

    def refuse(self, error: StoreError) -> None:
        """Answer everything that is held with *error*, and what would be held until ``begin``."""
        self._refusal = error
        self._held.fail(error)

    def begin(self) -> None:
        """Hold again what must not leave: this broker was elected."""
        self._refusal = None

    def close(self) -> None:
        """Stop watching the time."""
        self._held.close()


def _why_not(_end_offset: int) -> StoreError:
    return NotReplicatedError(
        "this broker cannot reach the replicas of its set, and another one may lead by now: what "
        "was asked is not promised; ask a name service for the master, and ask it again"
    )
