"""Authentication: the signature of a request must be that of the user whom it names.

An unknown user, a disabled one and a wrong signature get the same response after the same work. A
name that fails too often on a connection is rejected there without a check until its bucket has
refilled. Its address is not: behind NAT or a load balancer other clients share it.
"""

import hmac
import time
from collections.abc import Callable, Mapping

import structlog

from rockhopper.broker.users.accounts import User
from rockhopper.broker.users.errors import NotAuthenticated
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.signing import sign

log = structlog.get_logger("broker.access")

FAILURES_PER_S = 20.0
NAMES_PER_CONNECTION_MAX = 32
ADDRESSES_MAX = 4096
LOG_INTERVAL_S = 60.0
_NOBODY = User("", "the secret of nobody, so that unknown users take as long", is_enabled=False)


class FailureAllowance:
    """Recent failures on one connection: for each name, how many more are allowed."""

    __slots__ = ("_buckets", "_names_max")

    def __init__(self, names_max: int = NAMES_PER_CONNECTION_MAX) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}
        self._names_max = names_max

    @property
    def is_untouched(self) -> bool:
        """Whether no name has failed, so that none can be throttled."""
        return not self._buckets

    def count_left(self, name: str, now_s: float) -> float:
        """Return how often *name* may still fail now."""
        left, at_s = self._buckets.get(name, (FAILURES_PER_S, now_s))
        return min(FAILURES_PER_S, left + (now_s - at_s) * FAILURES_PER_S)

    def charge(self, name: str, now_s: float) -> None:
        """Count a failure.

        If there are too many names, those with full buckets are dropped first.
        """
        left, buckets = self.count_left(name, now_s), self._buckets
        if name not in buckets and len(buckets) >= self._names_max:
            for known in [
                each for each in buckets if self.count_left(each, now_s) >= FAILURES_PER_S
            ]:
                del buckets[known]
            if len(buckets) >= self._names_max:
                del buckets[next(iter(buckets))]
        buckets[name] = left - 1, now_s


class Authenticator:
    """Checks signatures against the users of one process."""

    def __init__(
        self,
        users: Mapping[str, User],
        *,
        is_enabled: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """*users* is read for each signature, and may change."""
        self.is_enabled = is_enabled
        self.users = users
        self._clock = clock
        self._by_address = FailureAllowance(ADDRESSES_MAX)
        """For callers without a connection: failures by name and address."""
        self._refused = 0
        self._logged_at_s = -LOG_INTERVAL_S

    def verify(
        self,
        access_key: str,
        signed: bytes,
        signature: bytes,
        host: str,
        failures: FailureAllowance | None = None,
    ) -> Principal:
        """Return the principal that has signed *signed*; *signature* is its bytes, not text.

        *failures* are those of the request's connection.

        Raises:
            NotAuthenticated: no known user has signed it.
        """
        user = self._find_claimed_user(access_key, host, failures)
        is_right = hmac.compare_digest(sign(user.secret, signed), signature)
        return self._conclude(access_key, user, host, failures, is_right=is_right)

    def prove(self, access_key: str, secret: str, host: str) -> Principal:
        """Return the principal of a user with this secret. Raises NotAuthenticated."""
        user = self._find_claimed_user(access_key, host, None)
        is_right = hmac.compare_digest(user.secret.encode(), secret.encode())
        return self._conclude(access_key, user, host, None, is_right=is_right)

    def is_throttled(self, access_key: str, host: str, failures: FailureAllowance | None) -> bool:
        """Return whether a name has failed so often that its signatures are not checked now."""
        counted, name = self._choose_counter(access_key, host, failures)
        return counted.count_left(name, self._clock()) < 1

    def _find_claimed_user(
        self, access_key: str, host: str, failures: FailureAllowance | None
    ) -> User:
        if self.is_throttled(access_key, host, failures):
            raise self._refusal(host)
        return self.users.get(access_key, _NOBODY)

    def _choose_counter(
        self, access_key: str, host: str, failures: FailureAllowance | None
    ) -> tuple[FailureAllowance, str]:
        """Return the counter of a name's failures, and its key: one for all unknown names."""
        name = access_key if access_key in self.users else ""
        return (self._by_address, f"{name}@{host}") if failures is None else (failures, name)

    def _conclude(
        self,
        access_key: str,
        user: User,
        host: str,
        failures: FailureAllowance | None,
        *,
        is_right: bool,
    ) -> Principal:
        if not (is_right and user.is_enabled):
            counted, name = self._choose_counter(access_key, host, failures)
            counted.charge(name, self._clock())
            raise self._refusal(host)
        return Principal(host, user.name)

    def _refusal(self, host: str) -> NotAuthenticated:
        self._refused += 1
        now_s = self._clock()
        if now_s - self._logged_at_s >= LOG_INTERVAL_S:
            log.warning(
                "requests without a valid user were refused", last=host, count=self._refused
            )
            self._logged_at_s, self._refused = now_s, 0
        return NotAuthenticated(
            "check signature failed: the user is unknown or disabled, or the secret is wrong; "
            "check accessKey and secretKey of the client"
        )
