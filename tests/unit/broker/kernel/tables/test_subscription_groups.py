"""SubscriptionGroupTable: creation on first use, RocketMQ's file, forbidden topics."""

from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables.subscription_groups import (
    SubscriptionGroup,
    SubscriptionGroupTable,
)
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import build_config
from tests.support.peers import Clock

# Printed by RocketMQ's own encoder (fastjson, pretty), with a time of ours.
ROCKETMQ_FILE = """\
{
	"dataVersion":{
		"counter":1,
		"stateVersion":0,
		"timestamp":1700000000000
	},
	"forbiddenTable":{},
	"subscriptionGroupTable":{
		"GroupB":{
			"attributes":{},
			"brokerId":0,
			"consumeBroadcastEnable":true,
			"consumeEnable":true,
			"consumeFromMinEnable":true,
			"consumeMessageOrderly":false,
			"consumeTimeoutMinute":15,
			"groupName":"GroupB",
			"groupRetryPolicy":{
				"type":"CUSTOMIZED"
			},
			"groupSysFlag":0,
			"notifyConsumerIdsChangedEnable":true,
			"retryMaxTimes":16,
			"retryQueueNums":1,
			"whichBrokerWhenConsumeSlowly":1
		}
	}
}"""


def table(tmp_path: Path, **settings: str) -> SubscriptionGroupTable:
    config = build_config(settings) if settings else BrokerConfig()
    return SubscriptionGroupTable(tmp_path / "subscriptionGroup.json", config, now_ms=Clock())


def test_the_file_is_rocketmqs_byte_for_byte(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.put(SubscriptionGroup("GroupB"))
    groups.save()
    assert groups.path.read_text().strip() == ROCKETMQ_FILE


def test_what_this_broker_does_not_use_is_handed_on(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.path.write_text(
        '{"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":3,"consumeEnable":false,'
        '"groupRetryPolicy":{"type":"EXPONENTIAL","exponentialRetryPolicy":{"max":9}},'
        '"futureField":[1]}},"forbiddenTable":{"g":{"secret":1}}}'
    )
    groups.load()
    group = groups.get("g")
    assert group is not None
    assert (group.retry_max_times, group.consume_enable, group.retry_queue_nums) == (3, False, 1)
    assert groups.is_forbidden("g", "secret")
    written = group.to_json()
    assert written["groupRetryPolicy"]["type"] == "EXPONENTIAL"
    assert written["futureField"] == [1]


def test_a_group_is_created_on_first_use(tmp_path: Path) -> None:
    groups = table(tmp_path)
    group = groups.find_or_create("billing")
    assert group is not None
    assert groups.find_or_create("billing") is group
    assert groups.version.counter == 1


@pytest.mark.parametrize("name", ["", "a b", "x" * 121, "a/b", "..", "naïve"])
def test_a_name_that_is_none_creates_nothing(tmp_path: Path, name: str) -> None:
    groups = table(tmp_path)
    assert groups.find_or_create(name) is None
    assert len(groups) == 0


def test_with_creation_switched_off_only_system_groups_appear(tmp_path: Path) -> None:
    groups = table(tmp_path, autoCreateSubscriptionGroup="false")
    assert groups.find_or_create("billing") is None
    assert groups.find_or_create("CID_RMQ_SYS_TRANS") is not None


def test_the_groups_of_every_broker_are_there(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.seed_system_groups()
    assert "TOOLS_CONSUMER" in groups
    counter = groups.version.counter
    groups.seed_system_groups()
    assert groups.version.counter == counter


def test_a_deleted_group_is_gone_with_its_prohibitions(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.put(SubscriptionGroup("billing"))
    groups.forbid("billing", "secret", readable=False)
    assert groups.is_forbidden("billing", "secret")
    assert groups.delete("billing")
    assert not groups.delete("billing")
    assert not groups.is_forbidden("billing", "secret")


def test_allowing_one_topic_keeps_the_others_forbidden(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.forbid("billing", "a", readable=False)
    groups.forbid("billing", "b", readable=False)
    groups.forbid("billing", "a", readable=True)
    assert not groups.is_forbidden("billing", "a")
    assert groups.is_forbidden("billing", "b")


def test_an_unknown_setting_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="colour"):
        SubscriptionGroup("billing", colour=True)


def test_a_prohibition_has_rocketmqs_bit_in_the_file(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.forbid("billing", "secret", readable=False)
    assert groups.to_json()["forbiddenTable"] == {"billing": {"secret": 4}}


def test_a_prohibition_of_the_first_release_is_still_one(tmp_path: Path) -> None:
    groups = table(tmp_path)
    document = groups.to_json() | {"forbiddenTable": {"billing": {"secret": 1, "other": 6}}}
    groups.from_json(document)
    assert groups.is_forbidden("billing", "secret")
    assert groups.to_json()["forbiddenTable"] == {"billing": {"secret": 4, "other": 6}}


def test_what_is_unknown_is_kept_unless_it_says_nothing() -> None:
    group = SubscriptionGroup.from_json(
        "g",
        {
            "groupName": "other",
            "retryQueueNums": "3",
            "consumeEnable": "False",
            "attributes": {"a": "b"},
            "subscriptionDataSet": None,
        },
    )
    assert (group.name, group.retry_queue_nums, group.consume_enable) == ("g", 3, False)
    assert group.attributes == {"a": "b"}
    assert set(group.others) == {"attributes", "groupRetryPolicy"}


def test_what_is_no_object_is_named() -> None:
    with pytest.raises(ValueError, match="group g is not a JSON object"):
        SubscriptionGroup.from_json("g", ["retryQueueNums"])
