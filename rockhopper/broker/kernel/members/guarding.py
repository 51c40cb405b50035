"""Creates the Guard of a broker or a name server from its user settings."""

import os
import secrets

import structlog

from rockhopper.broker.kernel.members.consumer_groups import Client
from rockhopper.broker.kernel.tables.accounts import AclTable, UserTable, accounts_to_json
from rockhopper.broker.settings.auth_config import GENERATE, HIDDEN, SECRET_KEYS
from rockhopper.broker.settings.broker_config import BrokerConfig, Role
from rockhopper.broker.settings.setting_fields import SettingError
from rockhopper.broker.users.access import AccessRules, Action, Resource, ResourceKind
from rockhopper.broker.users.accounts import User, check_name
from rockhopper.broker.users.errors import InvalidParameter
from rockhopper.broker.users.guard import Guard
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol import fastjson
from rockhopper.protocol.addresses import is_loopback
from rockhopper.protocol.signing import SECRET_LENGTH_MIN, Credentials

log = structlog.get_logger("broker.access")

FIRST_USER = "admin"
GENERATED_SECRET_BYTES = 24
SEAL_VARIABLE = "_ROCKHOPPER_CONSOLE_SEAL"
"""An environment variable: the secret with which a parent's console names the user it acts for."""


def guard_of(config: BrokerConfig) -> Guard:
    """Return the guard for *config*; it has no users yet."""
    auth = config.auth
    return Guard(
        remote_admin=config.remote_admin,
        authenticates=auth.authentication_enabled,
        authorizes=auth.authorization_enabled,
        cluster_name=config.cluster_name,
        unsigned_codes=auth.authentication_whitelist,
        free_codes=auth.authorization_whitelist,
        seal_secret=bytes.fromhex(os.environ.get(SEAL_VARIABLE, "")),
    )


def _add_super_user(users: UserTable, credentials: Credentials) -> None:
    try:
        name = check_name(credentials.access_key)
    except InvalidParameter as error:
        raise SettingError(SECRET_KEYS[0], HIDDEN, str(error)) from None
    if len(credentials.secret) < SECRET_LENGTH_MIN:
        log.warning("a secret is short: use at least 12 characters", user=name)
    users.store_user(User(name, credentials.secret, is_super=True))


def guard_with(guard: Guard, users: UserTable, acls: AclTable, config: BrokerConfig) -> None:
    """Connect *guard* to the loaded tables, so that it follows their changes.

    Raises:
        SettingError: a configured user is invalid, or no user could grant permissions.
    """
    first = config.auth.first_user
    for credentials in filter(None, (first, config.auth.inner)):
        known = users.users.get(credentials.access_key)
        if known is not None and credentials is first:
            log.info(
                "the password in initAuthenticationUser is ignored because the user exists already",
                user=known.name,
                is_the_same=known.secret == credentials.secret,
            )
        if known is None:
            _add_super_user(users, credentials)
    if config.auth.generates_user and not users.has_super and config.role is not Role.NAMESERVER:
        _generate_user(users, config)
    if config.auth.authentication_enabled and not users.has_super:
        raise SettingError(
            "authenticationEnabled",
            True,
            'it needs a Super user, and none exists: set initAuthenticationUser={"username": …, '
            '"password": …} for this start',
        )
    guard.use(users.users, acls.rules)
    users.guard = acls.guard = guard


def _generate_user(users: UserTable, config: BrokerConfig) -> None:
    """Create the first Super user, save it, and log its secret.

    Raises:
        SettingError: other brokers would each create their own user.
    """
    if config.replication.is_replica or config.brokers != 1:
        reason = (
            "only a single broker can generate a user; replicas, and brokers=N, need the same "
            'user: give them {"username": …, "password": …}'
        )
        raise SettingError(SECRET_KEYS[0], GENERATE, reason)
    user = User(FIRST_USER, secrets.token_urlsafe(GENERATED_SECRET_BYTES), is_super=True)
    users.store_user(user)
    users.save()
    log.warning(
        "first user created: its secret is shown only in this line; clients sign with it, for "
        "example through ROCKHOPPER_ACCESS_KEY and ROCKHOPPER_SECRET_KEY",
        access_key=user.name,
        secret_key=user.secret,
    )


def may_publish(access: AccessRules, client: Client, topic: str) -> bool:
    """Return whether a client's user may send to a topic, and so see what was sent to it."""
    principal = Principal(client.connection.principal.host, client.user)
    return access.is_open or access.may(principal, Action.PUB, Resource(ResourceKind.TOPIC, topic))


def accounts_of(users: UserTable, acls: AclTable) -> bytes:
    """Return the accounts that a broker sends to name servers (name_server/shared_accounts.py)."""
    return fastjson.dumps(accounts_to_json(users, acls)).encode()


def access_text(config: BrokerConfig) -> str:
    """Describe the access to a broker, for operators."""
    auth = config.auth
    if auth.authorization_enabled:
        return "users, by their rules"
    if auth.authentication_enabled:
        return "users, all of whom may read and write everything"
    if is_loopback(config.bind_address) or is_loopback(config.published_on):
        return "every user of its host"
    return "every host that reaches its ports"


def tell_about_guard(config: BrokerConfig) -> None:
    """Log a warning, at every start, about what others could do."""
    if is_loopback(config.bind_address) or is_loopback(config.published_on):
        return
    if not config.auth.authentication_enabled:
        log.warning(
            "OPEN TO EVERYBODY: the ports listen beyond this host, and any host that reaches "
            "them can read and write all messages; set authenticationEnabled=true, or "
            "bindAddress=127.0.0.1",
            bind_address=config.bind_address,
            remote_admin=config.remote_admin,
        )
    elif not config.tls.is_enforced:
        log.warning(
            "without TLS an eavesdropper can replay signed requests, and read secrets that are "
            "sent to httpPort",
            bind_address=config.bind_address,
        )
