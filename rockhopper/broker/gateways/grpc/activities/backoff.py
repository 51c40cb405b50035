"""The retry delays of messages, which clients receive with their settings.

The group's groupRetryPolicy decides, otherwise RocketMQ's default. Clients support different kinds:
Node only an exponential policy, Python a customized one, and Java terminates if there is none.
"""

from typing import Any

from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroup
from rockhopper.protocol.grpc_v2.messages import RetryPolicy

_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
_CUSTOMIZED_MS = tuple(seconds * 1000 for seconds in _S)
_EXPONENTIAL = {"initial": 5_000, "max": 7_200_000, "multiplier": 2}
PRODUCER_ATTEMPTS = 3
CONSUMER_ATTEMPTS_DEFAULT = 17
READS_EXPONENTIAL_ALONE = "HTTP"
"""The language that Node's client reports."""


def producer_policy() -> Any:
    """Return the policy of producers for failed sends."""
    return _exponential(PRODUCER_ATTEMPTS, 10, 1000, 2)


def consumer_policy(group: SubscriptionGroup | None, language: str) -> Any:
    """Return the policy of a client of *group* for messages that it failed to consume."""
    attempts = CONSUMER_ATTEMPTS_DEFAULT if group is None else group.retry_max_times + 1
    found = group.others.get("groupRetryPolicy") if group is not None else None
    policy: dict[str, Any] = found if isinstance(found, dict) else {}
    wanted = policy.get("exponentialRetryPolicy")
    is_exponential = policy.get("type") == "EXPONENTIAL" or language == READS_EXPONENTIAL_ALONE
    if is_exponential:
        values = {**_EXPONENTIAL, **(wanted if isinstance(wanted, dict) else {})}
        return _exponential(attempts, values["initial"], values["max"], values["multiplier"])
    customized = policy.get("customizedRetryPolicy")
    following = customized.get("next") if isinstance(customized, dict) else None
    retry = RetryPolicy(max_attempts=attempts)
    for delay_ms in following or _CUSTOMIZED_MS:
        retry.customized_backoff.next.add().FromMilliseconds(int(delay_ms))
    return retry


def _exponential(attempts: int, initial_ms: int, most_ms: int, multiplier: float) -> Any:
    retry = RetryPolicy(max_attempts=attempts)
    retry.exponential_backoff.initial.FromMilliseconds(int(initial_ms))
    retry.exponential_backoff.max.FromMilliseconds(int(most_ms))
    retry.exponential_backoff.multiplier = multiplier
    return retry
