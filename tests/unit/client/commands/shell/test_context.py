"""`rockhopper context`."""

import asyncio
import json
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rockhopper.broker import Broker
from rockhopper.client.cli import main


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


async def test_a_context_is_added_used_seen_and_removed(home: Path, broker: Broker) -> None:
    secret = home / "secret"
    secret.write_text("accessKey=a\nsecretKey=b\n")
    assert "; it is in use" in run("context", "add", "prod", "-n", broker.nameserver).output
    added = run(
        "context", "add", "test", "-n", "127.0.0.1:1", "--tls", "--credentials", str(secret)
    )
    assert "rockhopper context use test" in added.output
    listed = [line.split() for line in run("context", "ls").output.splitlines()]
    assert listed[1] == ["*", "prod", broker.nameserver, "no", "-"]
    assert listed[2] == ["test", "127.0.0.1:1", "yes", str(secret)]
    topics = await asyncio.to_thread(run, "topic", "create", "orders")
    assert (topics.exit_code, topics.stderr) == (0, "")
    assert run("context", "use", "test").output == "test is in use\n"
    shown = run("context", "show").output
    assert "test (in use, by context use)" in shown
    assert "ROCKHOPPER_TLS=true" in shown
    missing = await asyncio.to_thread(run, "topic", "show", "missing", "--context", "prod")
    assert missing.stderr.startswith("rockhopper [prod]: ")
    assert run("context", "rm", "test").output == "test is removed; no context is in use now\n"
    assert "no context is in use" in run("context", "show").stderr
    # What a context says holds for one command.
    assert "ROCKHOPPER_TLS" not in os.environ


def test_a_context_is_shown_in_lines_or_as_an_object(home: Path) -> None:
    run("context", "add", "prod", "-n", "127.0.0.1:1")
    run("context", "add", "test", "-n", "127.0.0.1:2")
    assert run("context", "show").output.splitlines() == [
        "context       prod (in use, by context use)",
        "name server   127.0.0.1:1",
        "              no TLS, no credentials",
    ]
    shown = [json.loads(run("context", "show", each, "--json").output) for each in ("prod", "test")]
    assert [(each["context"], each["inUse"]) for each in shown] == [("prod", True), ("test", False)]
    assert [each["nameserver"] for each in shown] == ["127.0.0.1:1", "127.0.0.1:2"]


@pytest.mark.parametrize(
    ("nameserver", "why"),
    [("127.0.0.1:1", "$NAMESRV_ADDR is 127.0.0.1:1"), ("", "none was selected")],
)
def test_why_no_context_is_in_use(
    home: Path, monkeypatch: pytest.MonkeyPatch, nameserver: str, why: str
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", nameserver)
    assert run("context", "show").stderr == f"no context is in use: {why}\n"


def test_a_bare_word_must_be_the_name_of_a_host(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(host: str, port: int) -> None:
        if host != "localhost":
            raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    refused = run("context", "add", "a", "-n", "nonsense")
    assert (refused.exit_code, "'nonsense' cannot be resolved here" in refused.stderr) == (2, True)
    assert run("context", "add", "a", "-n", "localhost").stderr == ""
    again = run("context", "add", "a", "-n", "localhost:1").stderr
    assert again == "note: it replaces a at localhost\n"
    noted = run("context", "add", "b", "-n", "nonsense:9876")
    assert (noted.exit_code, "note: the host name" in noted.stderr) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("add", "a/b", "-n", "127.0.0.1:1"), 2),
        (("add", "a", "-n", "a:b"), 2),
        (("use",), 2),
        (("use", "nix"), 1),
        (("rm", "nix"), 1),
        (("show", "nix"), 1),
    ],
)
def test_what_cannot_be_is_refused(home: Path, arguments: tuple[str, ...], code: int) -> None:
    assert run("context", *arguments).exit_code == code
    assert not (home / "rockhopper").exists()
