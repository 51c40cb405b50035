"""As whom a client asks: what the program, the environment and a file say."""

import logging
from pathlib import Path

import pytest

from rockhopper.client.errors import ClientStateError
from rockhopper.client.network.credentials import CredentialsFile, choose_credentials
from rockhopper.protocol.signing import Credentials

NAME, SECRET = {"ROCKHOPPER_ACCESS_KEY": "al"}, {"ROCKHOPPER_SECRET_KEY": "secret"}
TEXT = "accessKey: al\nsecretKey: secret\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "credentials"
    made.write_text(TEXT)
    made.chmod(0o600)
    return made


def test_the_environment_names_both_or_none() -> None:
    assert choose_credentials(None, {})() is None
    assert choose_credentials(None, NAME | SECRET)() == Credentials("al", "secret")


def test_each_says_where_it_is_from(path: Path) -> None:
    assert choose_credentials(Credentials("al", "secret"), {}).origin == "credentials="
    assert choose_credentials(None, NAME | SECRET).origin == "$ROCKHOPPER_SECRET_KEY"
    assert choose_credentials(path, {}).origin == f"the credentials file {path}"


@pytest.mark.parametrize("half", [NAME, SECRET])
def test_one_alone_is_refused(half: dict[str, str]) -> None:
    with pytest.raises(ClientStateError, match="set both"):
        choose_credentials(None, half)


def test_what_the_program_says_goes_before_the_environment(path: Path) -> None:
    own = Credentials("own", "mine")
    assert choose_credentials(own, NAME)() == own
    for named in (path, str(path), CredentialsFile(str(path))):
        assert choose_credentials(named, NAME)() == Credentials("al", "secret")


def test_the_environment_may_name_a_file_and_nothing_else(path: Path) -> None:
    named = {"ROCKHOPPER_CREDENTIALS_FILE": str(path)}
    assert choose_credentials(None, named)() == Credentials("al", "secret")
    with pytest.raises(ClientStateError, match="set either the file or the keys"):
        choose_credentials(None, named | NAME)


@pytest.mark.parametrize(
    "text",
    [
        "accessKey: al\nsecretKey: secret",
        "\ufeff# of mqadmin\r\n\r\nsecretKey: 'secret'\r\naccessKey: \"al\"\r\n",
        "  accessKey:al\n\tsecretKey:   secret  \n# end",
    ],
)
def test_the_file_is_that_of_mqadmin(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    assert CredentialsFile(str(path))() == Credentials("al", "secret")


def test_a_secret_may_hold_what_separates(path: Path) -> None:
    path.write_text("accessKey: al\nsecretKey: a:b#c\n")
    assert CredentialsFile(str(path))().secret == "a:b#c"


def test_the_file_is_read_anew_for_each_connection(path: Path) -> None:
    source = choose_credentials(path, {})
    path.write_text("accessKey: al\nsecretKey: another\n")
    assert source() == Credentials("al", "another")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no accessKey and no secretKey"),
        ("accessKey: al", "has no secretKey"),
        ("accessKey: al\nsecretKey:", "has no secretKey"),
        ("accessKey: al\nsecret: hidden", "line 2"),
        ("accessKey: al\naccessKey: al", "line 2"),
        ("hidden", "line 1"),
    ],
)
def test_what_cannot_be_read_is_said_without_what_stands_there(
    path: Path, text: str, problem: str
) -> None:
    path.write_text(text)
    with pytest.raises(ClientStateError, match=problem) as raised:
        choose_credentials(path, {})
    assert str(path) in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_a_file_that_is_not_there_or_is_no_text_is_named(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ClientStateError, match="is not a text file"):
        choose_credentials(path, {})
    path.unlink()
    with pytest.raises(ClientStateError, match=f"{path} cannot be read"):
        choose_credentials(path, {})


def test_who_lets_others_read_it_is_warned_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            CredentialsFile(str(path))()
    (record,) = caplog.records
    assert f"chmod 600 {path}" in record.getMessage()


def test_no_secret_is_shown() -> None:
    assert "hidden" not in f"{Credentials('al', 'hidden')} {Credentials('al', 'hidden')!r}"
