"""Users and permissions: RocketMQ's authentication and authorization settings (since 5.3)."""

import json

from rockhopper.broker.settings.setting_fields import SettingError, setting, settings_dataclass
from rockhopper.protocol.signing import Credentials

SECRET_KEYS = ("initAuthenticationUser", "innerClientAuthenticationCredentials")
"""Settings whose values are never shown."""
HIDDEN = "******"
GENERATE = "generate"


def _code(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("expected request codes, separated by commas")
    return int(text)


@settings_dataclass(frozen=True, repr=False)
class AuthConfig:
    """Users and permissions; none by default, because ports listen only on loopback by default."""

    authentication_enabled: bool = setting("authenticationEnabled", False)
    """Serve only users, who sign their requests. A Super user must exist: initAuthenticationUser
    creates the first.

    Cost: an HMAC-SHA1 over each request at the broker and at the client.
    """

    authorization_enabled: bool = setting("authorizationEnabled", False)
    """Allow users only what their rules allow; needs authenticationEnabled.

    Cost: checking the user's rules for each request.
    """

    authentication_whitelist: tuple[int, ...] = setting(
        "authenticationWhitelist", (), separator=",", element=_code
    )
    """Request codes that need no user, unless they change the cluster: 105,106 lets tools without a
    user ask for routes.

    Cost: safety: every host that reaches the port may send these.
    """

    authorization_whitelist: tuple[int, ...] = setting(
        "authorizationWhitelist", (), separator=",", element=_code
    )
    """Request codes that every user may send, unless they change the cluster.

    Cost: safety: every user may send these.
    """

    init_user: str = setting("initAuthenticationUser", "")
    """``{"username": …, "password": …}``: a Super user to create if there is no such user.
    ``generate``: with authenticationEnabled, the first start creates the user ``admin`` and logs
    its secret once.

    Cost: safety: the secret is in the settings, or in the log.
    """

    inner_credentials: str = setting("innerClientAuthenticationCredentials", "")
    """``{"accessKey": …, "secretKey": …}``: the user with which this broker signs its own requests
    to name servers and other brokers. Created as a Super user if there is no such user.

    Cost: safety: the secret is in the settings.
    """

    def __post_init__(self) -> None:
        if self.authorization_enabled and not self.authentication_enabled:
            raise SettingError("authorizationEnabled", True, "it needs authenticationEnabled=true")
        _ = self.first_user, self.inner

    @property
    def generates_user(self) -> bool:
        """Whether the first start creates a Super user with a random secret."""
        return self.authentication_enabled and self.init_user == GENERATE

    @property
    def first_user(self) -> Credentials | None:
        """The user of initAuthenticationUser, unless its secret is to be generated."""
        if self.init_user == GENERATE:
            return None
        return _credentials(SECRET_KEYS[0], self.init_user, "username", "password")

    @property
    def inner(self) -> Credentials | None:
        """The broker's own credentials."""
        return _credentials(SECRET_KEYS[1], self.inner_credentials, "accessKey", "secretKey")


def _credentials(key: str, text: str, name_field: str, secret_field: str) -> Credentials | None:
    if not text.strip():
        return None
    try:
        document = json.loads(text)
        name, secret = document[name_field], document[secret_field]
    except (ValueError, KeyError, TypeError):
        name = secret = None
    if not (isinstance(name, str) and isinstance(secret, str) and name and secret):
        allowed = f'expected {{"{name_field}": …, "{secret_field}": …}}'
        raise SettingError(key, HIDDEN, allowed) from None
    return Credentials(name, secret)
