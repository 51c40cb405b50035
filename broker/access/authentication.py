"""Who somebody is: a signature is that of the user whom it names, or it is refused.

An unknown user, a disabled one and a wrong signature are told the same, after the same work. An
address that is refused too often is refused unheard until its bucket has filled again.
"""

import hmac
import time
from collections.abc import Callable, Mapping

import structlog

from rockhopper.broker.access.accounts import User
from rockhopper.broker.access.errors import NotAuthenticated
from rockhopper.broker.access.peer import Principal
from rockhopper.protocol.signing import sign

log = structlog.get_logger("broker.access")

FAILURES_PER_S = 20.0
ADDRESSES_MAX = 4096
LOG_INTERVAL_S = 60.0
_NOBODY = User("", "the secret of nobody, so that unknown users take as long", is_enabled=False)


class Authenticator:
    """Checks signatures against the users of one process."""

    def __init__(
        self,
        users: Mapping[str, User],
        *,
        is_enabled: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """*users* is looked at for each signature, and may change."""
        self.is_enabled = is_enabled
        self.on_change: list[Callable[[str], None]] = []
        """Called with the name of a user who was deleted or disabled, or has a new secret: whatever
        acts in this name is to be closed."""
        self.users = users
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """Address -> failures left, and when that was so."""
        self._refused = 0
        self._logged_at_s = -LOG_INTERVAL_S

    def verify(self, access_key: str, signed: bytes, signature: bytes, host: str) -> Principal:
        """Who has signed *signed*; *signature* is its bytes, not text. Raises NotAuthenticated."""
        user = self._claimed(access_key, host)
        is_right = hmac.compare_digest(sign(user.secret, signed), signature)
        return self._proved(user, host, is_right=is_right)

    def prove(self, access_key: str, secret: str, host: str) -> Principal:
        """Who knows this user's secret. Raises NotAuthenticated."""
        user = self._claimed(access_key, host)
        is_right = hmac.compare_digest(user.secret.encode(), secret.encode())
        return self._proved(user, host, is_right=is_right)

    def _claimed(self, access_key: str, host: str) -> User:
        if self._buckets and self._left(host) < 1:
            raise self._refusal(host)
        return self.users.get(access_key, _NOBODY)

    def _proved(self, user: User, host: str, *, is_right: bool) -> Principal:
        if not (is_right and user.is_enabled):
            self._charge(host)
            raise self._refusal(host)
        return Principal(host, user.name)

    def user_changed(self, name: str) -> None:
        """Have everybody close what acts in the name of a user."""
        for listener in list(self.on_change):
            listener(name)

    def _left(self, host: str) -> float:
        left, at_s = self._buckets.get(host, (FAILURES_PER_S, 0.0))
        return min(FAILURES_PER_S, left + (self._clock() - at_s) * FAILURES_PER_S)

    def _charge(self, host: str) -> None:
        left = self._left(host)
        if host not in self._buckets and len(self._buckets) >= ADDRESSES_MAX:
            self._buckets = {
                known: bucket
                for known, bucket in self._buckets.items()
                if self._left(known) < FAILURES_PER_S
            }
            if len(self._buckets) >= ADDRESSES_MAX:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[host] = left - 1, self._clock()

    def _refusal(self, host: str) -> NotAuthenticated:
        self._refused += 1
        now_s = self._clock()
        if now_s - self._logged_at_s >= LOG_INTERVAL_S:
            log.warning("refused who could not prove a user", last=host, count=self._refused)
            self._logged_at_s, self._refused = now_s, 0
        return NotAuthenticated(
            "check signature failed: the user is unknown or disabled, or the secret is another; "
            "check accessKey and secretKey of the client"
        )
