"""What clients are told to do about failures."""

import pytest

from rockhopper.broker.gateways.grpc.activities.clients import consumer_policy, producer_policy
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroup


def group_with(policy: object) -> SubscriptionGroup:
    return SubscriptionGroup.from_json("g", {"groupRetryPolicy": policy, "retryMaxTimes": 4})


def test_producers_try_again_quickly() -> None:
    policy = producer_policy()
    assert policy.max_attempts == 3
    assert policy.exponential_backoff.initial.ToMilliseconds() == 10
    assert policy.exponential_backoff.multiplier == 2


def test_without_a_policy_the_delays_are_rocketmqs() -> None:
    policy = consumer_policy(None, "JAVA")
    delays = [each.ToMilliseconds() for each in policy.customized_backoff.next]
    assert (policy.max_attempts, len(delays)) == (17, 18)
    assert delays[:4] == [1000, 5000, 10_000, 30_000]
    assert delays[-1] == 7_200_000


def test_a_groups_own_delays_count() -> None:
    wanted = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [7, 8]}}
    policy = consumer_policy(group_with(wanted), "JAVA")
    assert policy.max_attempts == 5
    assert [each.ToMilliseconds() for each in policy.customized_backoff.next] == [7, 8]


@pytest.mark.parametrize("language", ["JAVA", "HTTP"])
def test_an_exponential_policy_is_told_as_one(language: str) -> None:
    exponential = {"initial": 1000, "max": 60_000, "multiplier": 3}
    wanted = {"type": "EXPONENTIAL", "exponentialRetryPolicy": exponential}
    policy = consumer_policy(group_with(wanted), language)
    assert policy.exponential_backoff.max.ToMilliseconds() == 60_000
    assert policy.exponential_backoff.multiplier == 3


def test_a_policy_that_makes_no_sense_is_passed_over() -> None:
    assert consumer_policy(group_with("often"), "JAVA").WhichOneof("strategy")
