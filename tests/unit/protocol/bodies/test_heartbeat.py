"""Heartbeats of clients of all languages."""

import pytest

from rockhopper.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
from rockhopper.protocol.errors import MalformedBodyError, SubscriptionError
from rockhopper.protocol.subscription import Subscription


def heartbeat(consumer: str) -> ConsumerData:
    (data,) = HeartbeatData.decode(
        f'{{"clientID":"c","consumerDataSet":[{consumer}]}}'
    ).consumer_data_set
    return data


def test_heartbeat_of_go_has_hashes_as_text_and_nanoseconds() -> None:
    data = heartbeat(
        '{"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        '"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[{"topic":"T",'
        '"subString":"TagA","codeSet":["2598919"],"tagsSet":["TagA"],'
        '"subVersion":1795166829790123456,"classFilterMode":false,"expressionType":"TAG"}]}'
    )
    (subscription,) = data.subscription_data_set
    assert subscription.sub_version == 1795166829790123456
    assert subscription.subscription().tag_hashes == {2598919}


def test_heartbeat_of_cpp_has_ordinals_and_zeros_for_hashes() -> None:
    data = heartbeat(
        '{"groupName":"g","consumeType":1,"messageModel":"1","consumeFromWhere":0,'
        '"subscriptionDataSet":[{"topic":"T","subString":"TagA||TagB","codeSet":[0,0],'
        '"tagsSet":["TagA","TagB"],"subVersion":"7"}]}'
    )
    assert data.consume_type == "CONSUME_PASSIVELY"
    assert data.message_model == "CLUSTERING"
    assert data.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
    (subscription,) = data.subscription_data_set
    assert subscription.code_set == [2598919, 2598920]
    assert subscription.sub_version == 7


def test_heartbeat_of_javascript_leaves_out_types_and_holds_nulls() -> None:
    data = heartbeat(
        '{"groupName":"g","consumeType":null,"subscriptionDataSet":'
        '[{"topic":"T","subString":"*","expressionType":null,"tagsSet":null}]}'
    )
    assert data.consume_type == "CONSUME_PASSIVELY"
    assert data.subscription_data_set[0].subscription() == Subscription("T")


def test_heartbeat_without_subscriptions() -> None:
    assert heartbeat('{"groupName":"g","subscriptionDataSet":null}').subscription_data_set == []


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"clientID":7}',
        '{"clientID":"c","consumerDataSet":7}',
        '{"clientID":"c","consumerDataSet":[7]}',
        '{"clientID":"c","consumerDataSet":[{}]}',
        '{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":9}]}',
        '{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{}]}]}',
        '{"clientID":"c","producerDataSet":["pg"]}',
        '{"clientID":"c","heartbeatFingerprint":"' + "9" * 5000 + '"}',
    ],
)
def test_heartbeat_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(MalformedBodyError):
        HeartbeatData.decode(text)


def test_ordinal_of_no_enumeration_stays_what_it_is() -> None:
    assert heartbeat('{"groupName":"g","consumeType":"' + "9" * 5000 + '"}').consume_type[0] == "9"


def test_subscription_that_is_no_filter_is_told_when_it_is_used() -> None:
    data = heartbeat('{"groupName":"g","subscriptionDataSet":[{"topic":"T","subString":"||"}]}')
    with pytest.raises(SubscriptionError):
        data.subscription_data_set[0].subscription()


def test_subscription_travels_with_tags_and_hashes() -> None:
    data = SubscriptionData.from_subscription(Subscription("T", "b||a", version=5))
    assert data == SubscriptionData("T", "b||a", "TAG", 5)
    assert (data.tags_set, data.code_set) == (["a", "b"], [97, 98])
