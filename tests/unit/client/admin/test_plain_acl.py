"""plain_acl.yml of RocketMQ 4: the sample of its documentation's shape, and what breaks it."""

import pytest

from rockhopper.client.admin.plain_acl import PlainAclError, PlainRule, read_plain_acl

SAMPLE = """
# who needs no account
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*   # an office
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - "topicC=SUB"
  groupPerms:
    # the group should convert to retry topic
    - groupA=DENY
    - groupB=PUB|SUB

- accessKey: rocketmq2
  secretKey: '1234#5678'
  whiteRemoteAddress:
  # if it is admin, it could access all resources
  admin: true
dataVersion:
  counter: 1
"""
MAY_TRACE = PlainRule("Topic:RMQ_SYS_TRACE_TOPIC", ["Pub"], True)


def test_accounts_become_users_with_rules() -> None:
    found = read_plain_acl(SAMPLE)
    first, second = found.accounts
    assert (first.name, first.secret, first.is_super) == ("RocketMQ", "12345678", False)
    assert first.rules == [
        PlainRule("Topic:topicA", ["All"], False),
        PlainRule("Topic:topicB", ["Pub", "Sub"], True),
        PlainRule("Topic:topicC", ["Sub"], True),
        PlainRule("Group:groupA", ["All"], False),
        PlainRule("Group:groupB", ["Pub", "Sub"], True),
        PlainRule("Group:*", ["Sub"], True, is_default=True),
        MAY_TRACE,
    ]
    assert (second.secret, second.is_super, second.rules) == ("1234#5678", True, [])
    assert "12345678" not in repr(found)


def test_what_has_no_place_is_said() -> None:
    found = read_plain_acl(SAMPLE)
    assert [sentence.split(":")[0] for sentence in found.left_out] == [
        "globalWhiteRemoteAddresses 10.10.103.*",
        "globalWhiteRemoteAddresses 192.168.0.*",
        "whiteRemoteAddress 192.168.1.* of RocketMQ",
    ]


def test_lists_may_stand_in_brackets_and_files_be_empty() -> None:
    assert read_plain_acl("") == read_plain_acl("accounts: []\n") == read_plain_acl("accounts:\n")
    text = "accounts:\n- {}\n".replace("{}", "accessKey: a\n  secretKey: b\n  topicPerms: [t=PUB]")
    assert read_plain_acl(text).accounts[0].rules == [
        PlainRule("Topic:t", ["Pub"], True),
        MAY_TRACE,
    ]


def test_who_may_trace_is_as_in_rocketmq_4_unless_the_file_says_it() -> None:
    text = "accounts:\n- accessKey: a\n  secretKey: b\n"
    assert read_plain_acl(text).accounts[0].rules == [MAY_TRACE]
    named = read_plain_acl(f"{text}  topicPerms: [RMQ_SYS_TRACE_TOPIC=DENY]\n")
    assert named.accounts[0].rules == [PlainRule("Topic:RMQ_SYS_TRACE_TOPIC", ["All"], False)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("users: []", "users"),
        ("accounts:\n- accessKey: a", "secretKey"),
        ("accounts:\n- accessKey: a\n  secretKey: b\n  colour: red", "colour"),
        ("accounts:\n- accessKey: a\n  secretKey: b\n  topicPerms:\n  - t", "name=PERMISSION"),
        ("accounts:\n- accessKey: a\n  secretKey: b\n  topicPerms:\n  - t=EAT", "EAT"),
        ("accounts:\n- accessKey: a\n  accessKey: b", "line 3"),
        ("accounts:\n- accessKey: &a b", "line 2"),
        ("accounts:\n-\taccessKey: a\n\t  secretKey: b", "line 3"),
        ("accounts:\n- a", "not a mapping"),
        ("accounts: x", "not a list"),
        ("what is this", "line 1"),
        ("accounts:\n- accessKey: a\n      secretKey: b", "line 3"),
    ],
)
def test_what_is_no_such_file_is_refused(text: str, said: str) -> None:
    with pytest.raises(PlainAclError, match=said):
        read_plain_acl(text)
