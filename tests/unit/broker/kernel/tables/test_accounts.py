"""The files of users and rules: kept whole, for their owner alone, and never an open door."""

from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables.accounts import AclTable, UserTable
from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.users.access import KINDS, ResourceKind
from rockhopper.broker.users.accounts import Pattern, PolicyType, Rule, User, parse_actions
from rockhopper.broker.users.guard import Guard
from tests.support.heard_users import HeardUsers

ALICE = User("alice", "a secret of alice", is_super=True)
RULES = (
    Rule(Pattern.parse("Topic:o*"), parse_actions(["Pub"]), ("10.0.0.0/8",), True),
    Rule(Pattern.parse("*"), parse_actions(["All"]), (), False, PolicyType.DEFAULT),
)


def users(path: Path) -> UserTable:
    return UserTable(path / "users.json", now_ms=lambda: 5)


def acls(path: Path) -> AclTable:
    return AclTable(path / "acls.json", now_ms=lambda: 5)


class Heard(Guard):
    def __init__(self, *, remote_admin: bool, authenticates: bool) -> None:
        super().__init__(remote_admin=remote_admin, authenticates=authenticates)
        self.heard = HeardUsers()
        self.listeners.append(self.heard)


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    table, rules = users(tmp_path), acls(tmp_path)
    table.store_user(ALICE)
    rules.replace_rules("alice", RULES)
    table.save()
    rules.save()
    again, rules_again = users(tmp_path), acls(tmp_path)
    assert again.load()
    assert rules_again.load()
    assert (again.users, rules_again.rules) == ({"alice": ALICE}, {"alice": RULES})
    assert again.has_super


def test_the_files_are_their_owners(tmp_path: Path) -> None:
    (tmp_path / "users.json.tmp").write_text("left")
    table = users(tmp_path)
    table.store_user(ALICE)
    table.save()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_damage_stops_the_start_and_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text('{"users": {"alice": {"password": "hidden"}}}')
    with pytest.raises(CorruptFileError) as caught:
        users(tmp_path).load()
    assert "hidden" not in str(caught.value)


def test_a_rule_about_a_kind_of_resource_that_does_not_exist_stops_the_start(
    tmp_path: Path,
) -> None:
    rule = Rule(Pattern.parse("Queue:o*", kinds=None), parse_actions(["Pub"]), (), False)
    table = acls(tmp_path)
    table.replace_rules("alice", [rule])
    table.save()
    again = acls(tmp_path)
    again.load()
    assert again.rules == {"alice": (rule,)}
    again = AclTable(
        tmp_path / "acls.json", now_ms=lambda: 5, kinds=(*KINDS, ResourceKind("Queue"))
    )
    again.load()
    assert again.rules == {"alice": (rule,)}
    with pytest.raises(
        CorruptFileError, match=r"'Queue:o\*' is not a resource: use .* and Cluster"
    ):
        AclTable(tmp_path / "acls.json", now_ms=lambda: 5, kinds=KINDS).load()


def test_an_edited_file_counts_and_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = users(tmp_path)
    table.store_user(ALICE)
    table.save()
    path = tmp_path / "users.json"
    path.write_text(path.read_text().replace("of alice", "of malice"))
    again = users(tmp_path)
    again.load()
    assert again.users["alice"].secret == "a secret of malice"
    text = capsys.readouterr().out
    assert "differs from what was saved" in text
    assert "a secret" not in text


def test_entries_go_to_other_replicas_and_come_back(tmp_path: Path) -> None:
    table, rules = users(tmp_path / "a"), acls(tmp_path / "a")
    table.store_user(ALICE)
    rules.replace_rules("alice", RULES)
    other, others_rules = users(tmp_path / "b"), acls(tmp_path / "b")
    guard = Heard(remote_admin=False, authenticates=True)
    other.guard = guard
    other.take_entry("alice", table.entry("alice"))
    others_rules.take_entry("alice", rules.entry("alice"))
    assert (other.users, others_rules.rules) == (table.users, rules.rules)
    other.take_entry("alice", None)
    others_rules.take_entry("alice", None)
    assert (other.users, others_rules.rules, guard.heard.users) == ({}, {}, ["alice", "alice"])
