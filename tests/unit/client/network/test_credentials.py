"""Credentials of the environment: both or none."""

import pytest

from rockhopper.client.errors import ClientStateError
from rockhopper.client.network.credentials import environment_credentials
from rockhopper.protocol.signing import Credentials

NAME, SECRET = {"ROCKHOPPER_ACCESS_KEY": "al"}, {"ROCKHOPPER_SECRET_KEY": "secret"}


def test_both_or_none() -> None:
    assert environment_credentials({}) is None
    assert environment_credentials(NAME | SECRET) == Credentials("al", "secret")


@pytest.mark.parametrize("half", [NAME, SECRET])
def test_one_alone_is_refused(half: dict[str, str]) -> None:
    with pytest.raises(ClientStateError, match="set both"):
        environment_credentials(half)
