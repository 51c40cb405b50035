"""Translates a broker's settings for replication."""

from collections.abc import Callable
from pathlib import Path

from rockhopper.broker.kernel.parts import BrokerCore
from rockhopper.broker.replication.engines.engine import EngineError
from rockhopper.broker.replication.engines.engines import engine_for
from rockhopper.broker.replication.roles.client_ports import ClientPorts
from rockhopper.broker.replication.roles.set_member import SetMember
from rockhopper.broker.replication.roles.store_period import OpenAs
from rockhopper.broker.replication.shipping.links import SetFacts
from rockhopper.broker.replication.shipping.membership import Membership
from rockhopper.broker.replication.shipping.replica import now_ms
from rockhopper.broker.server.listening.listener import OPEN, Gate
from rockhopper.broker.server.listening.outgoing import Outgoing
from rockhopper.broker.server.listening.renewed_files import RenewedFiles
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import properties_of
from rockhopper.broker.settings.replica_config import read_secret
from rockhopper.broker.settings.setting_fields import SettingError
from rockhopper.protocol.addresses import join_address

_SHARED = (
    "minInSyncReplicas",
    "haReplicas",
    "haMode",
    "flushDiskType",
    "messageDelayLevel",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "maxMessageSize",
)


class JoinError(Exception):
    """The broker cannot be a replica with these settings; the message gives the reason."""


def member_of(parts: BrokerCore, client_ports: ClientPorts, open_as: OpenAs) -> SetMember:
    """Return the set member that the broker's settings describe; this opens nothing.

    Raises:
        JoinError: a file that a setting names cannot be used, or there is no such engine here.
    """
    try:
        engine = engine_for(parts.config, now_ms)
    except (SettingError, EngineError) as error:
        raise JoinError(str(error)) from error
    return SetMember(parts, client_ports, engine, open_as)


def membership_of(
    config: BrokerConfig, port: int, address: str, host: str, gate: Gate = OPEN
) -> Membership:
    """Return the replica that a broker is.

    Clients reach it at *address*; *host* is this machine's.

    Raises:
        JoinError: haSecretFile cannot be used.
    """
    replication = config.replication
    ha_host = replication.address or config.broker_ip1 or host
    try:
        secret = _secret_of(replication.secret_file)
    except SettingError as error:
        raise JoinError(str(error)) from error
    facts = SetFacts(
        config.cluster_name,
        config.broker_name,
        config.store.commit_log_file_size_bytes,
        secret,
    )
    return Membership(
        replication.replica_id,
        facts,
        replication.floor,
        address,
        host=config.bind_address,
        ha_port=replication.ha_port(port),
        ha_host=ha_host,
        priority=replication.priority,
        replicas_after_power_cut=(
            replication.replicas if replication.unclean_after_power_cut else 0
        ),
        own_address=join_address(ha_host, port),
        settings=tuple(list_shared_settings(config).items()),
        gate=gate,
        outgoing=Outgoing(config.tls),
    )


def list_shared_settings(config: BrokerConfig) -> dict[str, str]:
    """Return the settings that all replicas should share.

    These are the settings of replication and of the log format.
    """
    properties = properties_of(config) | {"minInSyncReplicas": str(config.replication.floor)}
    return {key: properties[key] for key in _SHARED}


def _secret_of(path: Path | None) -> bytes | Callable[[], bytes]:
    if path is None:
        return b""
    secret = RenewedFiles([path], lambda: read_secret("haSecretFile", path))
    secret.current()
    return secret.current
