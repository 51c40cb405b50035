"""Which context counts, and what of it."""

from pathlib import Path

import pytest

from rockhopper.client.commands.shell.context_choice import choose_context, find_missing_variables
from rockhopper.client.commands.shell.contexts import (
    Context,
    ContextError,
    Contexts,
)


def keep(path: Path, current: str | None = "prod") -> Contexts:
    prod = Context("10.0.0.1:9876", tls=True, tls_ca="/ca.pem", credentials="/c")
    contexts = Contexts(path, current, {"prod": prod, "test": Context("127.0.0.1:9876")})
    contexts.save()
    return contexts


def test_whoever_names_a_name_service_does_without_a_file_even_a_damaged_one(path: Path) -> None:
    assert choose_context(None, has_nameserver=False, environment={}) is None
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert choose_context(None, has_nameserver=True, environment={}) is None
    with pytest.raises(ContextError):
        choose_context(None, has_nameserver=False, environment={})


@pytest.mark.parametrize(
    ("asked", "has_nameserver", "environment", "name"),
    [
        (None, False, {}, "prod"),
        (None, True, {}, None),
        (None, False, {"NAMESRV_ADDR": "h:1"}, None),
        ("test", False, {"NAMESRV_ADDR": "h:1"}, "test"),
        ("test", True, {}, "test"),
        (None, False, {"ROCKHOPPER_CONTEXT": "test"}, "test"),
        ("prod", False, {"ROCKHOPPER_CONTEXT": "test"}, "prod"),
    ],
)
def test_options_and_environment_go_before_the_context_in_use(
    path: Path,
    asked: str | None,
    has_nameserver: bool,
    environment: dict[str, str],
    name: str | None,
) -> None:
    keep(path)
    found = choose_context(asked, has_nameserver, environment)
    assert (found and found[0]) == name


def test_a_context_that_is_not_there_is_named_with_those_that_are(path: Path) -> None:
    keep(path, current="gone")
    assert choose_context(None, has_nameserver=False, environment={}) is None
    with pytest.raises(ContextError, match="'nix'; existing ones: prod, test"):
        choose_context("nix", has_nameserver=False)


def test_what_the_environment_says_stays(path: Path) -> None:
    prod = keep(path).by_name["prod"]
    assert find_missing_variables(prod, {}) == {
        "ROCKHOPPER_TLS": "true",
        "ROCKHOPPER_TLS_CA": "/ca.pem",
        "ROCKHOPPER_CREDENTIALS_FILE": "/c",
    }
    said = {"ROCKHOPPER_TLS_CA": "/other.pem", "ROCKHOPPER_ACCESS_KEY": "somebody"}
    assert find_missing_variables(prod, said) == {"ROCKHOPPER_TLS": "true"}
