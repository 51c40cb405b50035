"""From settings and tables to a guard, and what an operator is told of it."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.members.consumer_groups import Client
from rockhopper.broker.kernel.members.guarding import (
    access_text,
    guard_of,
    guard_with,
    may_publish,
    tell_about_guard,
)
from rockhopper.broker.kernel.tables.accounts import AclTable, UserTable
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.settings.setting_fields import SettingError
from rockhopper.broker.users.access import CLUSTER, Action
from rockhopper.broker.users.accounts import User
from rockhopper.broker.users.guard import Guard
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.signing import SECRET_LENGTH_MIN
from tests.support.heard_users import HeardUsers
from tests.support.peers import Peer

ON = {"authenticationEnabled": "true"}
ROOT = {"initAuthenticationUser": '{"username": "root", "password": "a secret of root"}'}


def guarded(path: Path, texts: dict[str, str]) -> tuple[Guard, UserTable]:
    config = build_config(texts)
    users = UserTable(path / "users.json", now_ms=lambda: 5)
    guard = guard_of(config)
    guard_with(guard, users, AclTable(path / "acls.json", now_ms=lambda: 5), config)
    return guard, users


def test_without_a_super_user_the_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="initAuthenticationUser"):
        guarded(tmp_path, ON)


GENERATE = {"initAuthenticationUser": "generate"}


def test_the_first_start_makes_a_user_and_shows_its_secret_once(tmp_path: Path) -> None:
    with capture_logs() as lines:
        guard, users = guarded(tmp_path, ON | GENERATE)
    (line,) = lines
    (user,) = users.users.values()
    assert (line["access_key"], line["secret_key"]) == (user.name, user.secret)
    assert len(user.secret) >= SECRET_LENGTH_MIN
    assert guard.may(Principal("10.0.0.7", user.name), Action.ADMINISTER, CLUSTER)
    again = UserTable(tmp_path / "users.json", now_ms=lambda: 5)
    again.load()
    with capture_logs() as lines:
        config = build_config(ON | GENERATE)
        guard_with(
            guard_of(config), again, AclTable(tmp_path / "acls.json", now_ms=lambda: 5), config
        )
    assert (lines, dict(again.users)) == ([], dict(users.users))


def test_no_user_is_made_where_nobody_has_to_be_one(tmp_path: Path) -> None:
    _, users = guarded(tmp_path, GENERATE)
    assert not users.users


def test_brokers_that_need_the_same_user_make_none_up(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="need the same user"):
        guarded(tmp_path, ON | GENERATE | {"brokers": "2"})


def test_changes_of_users_count_at_once_and_end_their_connections(tmp_path: Path) -> None:
    guard, users = guarded(tmp_path, ON | ROOT)
    heard = HeardUsers()
    guard.listeners.append(heard)
    root = Principal("10.0.0.7", "root")
    assert guard.may(root, Action.UPDATE, CLUSTER)
    users.store_user(User("root", "another secret", is_super=True, is_enabled=False))
    assert not guard.may(root, Action.UPDATE, CLUSTER)
    assert heard.users == ["root"]


def test_who_may_publish_is_who_speaks_for_the_client(tmp_path: Path) -> None:
    client = Client(Peer("10.0.0.7").connection, "c", 0, 479, "root")
    stranger = Client(Peer("10.0.0.7").connection, "c", 0, 479, "al")
    guard, users = guarded(tmp_path, ON | {"authorizationEnabled": "true"} | ROOT)
    users.store_user(User("al", "a secret of al"))
    assert may_publish(guard, client, "orders")
    assert not may_publish(guard, stranger, "orders")
    assert may_publish(guard_of(build_config({})), stranger, "orders")


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ({}, ""),
        ({"bindAddress": "0.0.0.0"}, "OPEN TO EVERYBODY"),
        ({"bindAddress": "0.0.0.0", "publishedOn": "127.0.0.1"}, ""),
        ({"bindAddress": "0.0.0.0", "publishedOn": "10.0.0.5"}, "OPEN TO EVERYBODY"),
        (ON | ROOT | {"bindAddress": "0.0.0.0"}, "without TLS"),
        (ON | ROOT | {"bindAddress": "0.0.0.0", "tlsServerMode": "permissive"}, "without TLS"),
        (ON | ROOT | {"bindAddress": "0.0.0.0", "tlsServerMode": "enforcing"}, ""),
    ],
)
def test_an_open_port_is_told_of(
    texts: dict[str, str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_about_guard(build_config(texts))
    text = capsys.readouterr().out
    assert told in text
    assert bool(text) == bool(told)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({}, "every user of its host"),
        ({"bindAddress": "0.0.0.0"}, "every host that reaches its ports"),
        (ON, "users, all of whom may read and write everything"),
        ({**ON, "authorizationEnabled": "true"}, "users, by their rules"),
    ],
)
def test_operators_are_told_who_may_use_a_broker(texts: dict[str, str], said: str) -> None:
    assert access_text(build_config(texts)) == said


def test_a_password_for_a_user_who_is_there_is_said_not_to_be_used(tmp_path: Path) -> None:
    _, users = guarded(tmp_path, ON | ROOT)
    config = build_config(
        ON | {"initAuthenticationUser": '{"username": "root", "password": "another secret"}'}
    )
    with capture_logs() as lines:
        guard_with(guard_of(config), users, AclTable(tmp_path / "a", now_ms=lambda: 5), config)
    assert [(line["user"], line["is_the_same"]) for line in lines] == [("root", False)]
    assert "is ignored" in lines[0]["event"]
    assert users.users["root"].secret == "a secret of root"
