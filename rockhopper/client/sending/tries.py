"""Decides whether and when a failed send is retried.

If a broker is unreachable or refuses all writes, another replica may soon be its leader. The send
is then retried until its timeout: at once if there is another broker, else after 20 ms, doubled
each time. After other failures the producer's setting limits the retries. If the topic has fewer
queues than the route says, the send is retried on another queue of a new route.

A half message of a transaction is retried only while it is certain that no broker has stored it: a
second copy would be checked and delivered separately. If no retries are allowed, this holds for
every send.
"""

from rockhopper.client.errors import (
    BrokerUnreachableError,
    ClientError,
    RequestRefusedError,
    RequestTimeoutError,
    may_have_moved,
)
from rockhopper.client.sending.outgoing import OutgoingMessage
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.sys_flags import SYS_FLAG_TRANSACTION_PREPARED

_PAUSE_S = 0.05
_FIRST_PAUSE_S = 0.02
_PAUSE_MAX_S = 0.5
_NOTES_MAX = 3
_ROUTES_MAX = 6


class Tries:
    """The failed tries of one send so far. No I/O."""

    def __init__(self, outgoing: OutgoingMessage, retries: int, *, is_bound: bool) -> None:
        """`is_bound` means that the application has chosen the queue."""
        self.failed_on: frozenset[str] = frozenset()
        """Brokers to avoid if there is another."""
        self._retries = retries
        self._is_bound = is_bound
        self._is_keyed = outgoing.sharding_key is not None
        is_half = bool(outgoing.sys_flag & SYS_FLAG_TRANSACTION_PREPARED)
        self._is_sent_once = is_half or not retries  # unless it is certain that it was not stored
        self._failures: list[ClientError] = []
        self._waits = 0
        self._queues_unknown = 0

    def failed(self, error: ClientError, broker_name: str) -> None:
        """Record a failed try."""
        self._failures.append(error)
        self.failed_on |= {broker_name}

    def outcome(self) -> ClientError:
        """Return the send's final error: the last failure, with notes about earlier ones.

        The traceback down to the socket is dropped: it adds nothing to the message.
        """
        last = self._failures[-1]
        earlier = dict.fromkeys(str(each) for each in self._failures)
        earlier.pop(str(last))
        for text in list(earlier)[-_NOTES_MAX:]:
            last.add_note(f"earlier attempts: {text}")
        return last.with_traceback(None)

    def pause_s(self, *, has_others: bool) -> float | None:
        """Return the pause before the next try; None if there must be no more."""
        error = self._failures[-1]
        if may_be_stored(error) and self._is_sent_once:
            return None
        if isinstance(error, RequestRefusedError):
            if error.was_outdated:
                return 0.0  # nothing was stored, and the next try has a new signature
            if error.is_queue_unknown:
                return self._pause_queue_unknown_s()
        if may_have_moved(error):
            return self._pause_moved_s(has_others)
        if len(self._failures) > self._retries:
            return None
        if isinstance(error, RequestRefusedError):
            return self._pause_refused_s(error, has_others)
        return self._pause_timeout_s() if isinstance(error, RequestTimeoutError) else None

    def _pause_moved_s(self, has_others: bool) -> float:
        if has_others:
            return 0.0
        # After the pause every broker may be tried again.
        self.failed_on = frozenset()
        self._waits += 1
        return float(min(_FIRST_PAUSE_S * 2 ** min(self._waits - 1, 8), _PAUSE_MAX_S))

    def _pause_timeout_s(self) -> float | None:
        if self._is_keyed:
            return _PAUSE_S
        return None if self._is_bound else 0.0

    def _pause_queue_unknown_s(self) -> float | None:
        """Return time for the broker to register the changed topic; the first retry needs none."""
        self._queues_unknown += 1
        if self._queues_unknown > _ROUTES_MAX:
            return None
        return _FIRST_PAUSE_S * 2**self._queues_unknown if self._queues_unknown > 1 else 0.0

    def _pause_refused_s(self, error: RequestRefusedError, has_others: bool) -> float | None:
        if error.code == ResponseCode.GO_AWAY:
            return 0.0  # nothing was stored, and the next try reconnects
        if self._is_keyed and error.code == ResponseCode.SYSTEM_BUSY:
            return _PAUSE_S
        return 0.0 if error.is_retriable and has_others else None


def may_be_stored(error: Exception) -> bool:
    """Whether the broker may have stored the message without acknowledging it."""
    if isinstance(error, BrokerUnreachableError):
        return error.was_sent
    return isinstance(error, RequestTimeoutError)
