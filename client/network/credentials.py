"""As whom a client asks: ROCKHOPPER_ACCESS_KEY and ROCKHOPPER_SECRET_KEY, where they are set."""

import os
from collections.abc import Mapping

from rockhopper.client.errors import ClientStateError
from rockhopper.protocol.signing import Credentials

ACCESS_KEY_VARIABLE = "ROCKHOPPER_ACCESS_KEY"
SECRET_KEY_VARIABLE = "ROCKHOPPER_SECRET_KEY"


def environment_credentials(environment: Mapping[str, str] = os.environ) -> Credentials | None:
    """The user and secret that the environment names; None when it names neither.

    Raises:
        ClientStateError: it names one of the two alone.
    """
    access_key = environment.get(ACCESS_KEY_VARIABLE, "")
    secret = environment.get(SECRET_KEY_VARIABLE, "")
    if bool(access_key) != bool(secret):
        raise ClientStateError(
            f"of {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} only one is set: set both or none"
        )
    return Credentials(access_key, secret) if access_key else None
