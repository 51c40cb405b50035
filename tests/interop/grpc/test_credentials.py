"""Clients with the right credentials are served, those with wrong ones or none are not."""

import pytest

from tests.interop.grpc import topics
from tests.interop.grpc.conftest import Programs
from tests.interop.grpc.programs import ANSWER_TIMEOUT_S, CLIENTS, ProgramError
from tests.interop.grpc.servers import AGAINST_APACHE, AUTHENTICATES, Endpoint, User

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not AUTHENTICATES, reason="the broker does not authenticate"),
]


@pytest.fixture(scope="module")
def guarded(endpoint: Endpoint, user: User) -> Endpoint:
    """The same server with the topics that it has, but it authenticates from now on."""
    endpoint.kill()
    endpoint.start(user)
    if AGAINST_APACHE:  # Its name server answers every client.
        for client in CLIENTS:
            topics.until_routed(endpoint.nameserver, topics.topic_of(client, "normal"))
    return endpoint


@pytest.mark.usefixtures("guarded")
def test_the_right_credentials_are_served(programs: Programs, client: str, user: User) -> None:
    right = {"accessKey": user.name, "secretKey": user.password}
    done = programs.begin(client, "normal", "normal", count=3, **right)
    assert done is not None
    assert len(done.result(ANSWER_TIMEOUT_S)) == 3


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("secret", ["a-wrong-secret-of-tests", None])
def test_wrong_credentials_are_refused(
    programs: Programs, client: str, user: User, secret: str | None
) -> None:
    wrong = {"accessKey": user.name if secret else None, "secretKey": secret}
    done = programs.begin(client, "send", "normal", **wrong)
    assert done is not None
    with pytest.raises(ProgramError):
        done.result(ANSWER_TIMEOUT_S)
