"""The file of contexts, and which of them counts."""

import pwd
import stat
from pathlib import Path
from typing import NoReturn

import pytest

from rockhopper.client.commands.shell.contexts import (
    Context,
    ContextError,
    Contexts,
)


def keep(path: Path, current: str | None = "prod") -> Contexts:
    prod = Context("10.0.0.1:9876;10.0.0.2:9876", tls=True, tls_ca="/ca.pem", credentials="/c")
    contexts = Contexts(path, current, {"prod": prod, "test": Context("127.0.0.1:9876")})
    contexts.save()
    return contexts


def test_what_was_kept_is_read_and_is_for_its_owner_alone(path: Path) -> None:
    kept = keep(path)
    assert Contexts.load() == kept
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["contexts.json"]


def test_without_a_file_there_are_none(path: Path) -> None:
    assert Contexts.load().by_name == {}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"contexts": {"a": {}}}',
        b'{"contexts": {"a": {"nameserver": 5}}}',
        b'{"contexts": {"a": {"nameserver": "a:b"}}}',
        b'{"contexts": {"a": {"nameserver": "h:1", "secretKey": "x"}}}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_file_is_one_sentence(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    with pytest.raises(ContextError, match=r"cannot be read .* repair the file, or remove it"):
        Contexts.load()


def test_a_failed_save_leaves_the_former_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keep(path)

    def refuse(_source: str, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(ContextError, match="No space left on device"):
        Contexts(path, None, {}).save()
    assert Contexts.load() == kept
    assert [each.name for each in path.parent.iterdir()] == ["contexts.json"]


def test_without_a_home_directory_there_are_none_and_none_can_be_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(_who: object) -> NoReturn:
        raise KeyError("uid not found")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    found = Contexts.load()
    assert not found.by_name
    with pytest.raises(ContextError, match="set HOME or XDG_CONFIG_HOME"):
        found.save()


def test_a_home_that_is_a_file_has_no_contexts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    found = Contexts.load()
    assert not found.by_name
    with pytest.raises(ContextError, match="set XDG_CONFIG_HOME"):
        found.save()
