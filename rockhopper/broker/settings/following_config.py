"""The settings of a broker that follows another: defaults and costs."""

from rockhopper.broker.settings.setting_fields import (
    SettingError,
    check_fields,
    setting,
    settings_dataclass,
)
from rockhopper.protocol.addresses import split_address


@settings_dataclass(frozen=True)
class FollowingConfig:
    """The broker that this one copies, instead of serving clients."""

    follow_master: str = setting("followMaster", "")
    """Ours. host:port of a RocketMQ master, 4.x or 5.x without controller, by its listenPort. This
    broker copies its log and tables, and refuses clients until it takes over. Empty: it serves.

    Cost: the master's disk and network for its whole log.
    """

    ha_master_address: str = setting("haMasterAddress", "")
    """host:port of that master's replication port. Empty: the master's own host, and the
    haListenPort that it reports among its settings."""

    send_heartbeat_interval_ms: int = setting(
        "haSendHeartbeatInterval", 5000, least=10, most=600_000
    )
    """How often an idle connection reports to the master how far the copy is.

    Cost: a few bytes each time.
    """

    housekeeping_interval_ms: int = setting(
        "haHousekeepingInterval", 20_000, least=20, most=600_000
    )
    """After how much silence of the master the connection is closed and opened again.

    Cost: with a long time, a dead connection is noticed later.
    """

    tables_interval_ms: int = setting("followTablesInterval", 10_000, least=10, most=600_000)
    """Ours. How often topics, groups and offsets are copied. Messages enter their queues with the
    next copy, so a takeover reads only what came since.

    Cost: a request for each table each time; a long interval makes a takeover slower.
    """

    force_takeover: bool = setting("forceTakeover", False)
    """Ours. Serve a store that followed a master without checking that this master has stopped
    taking messages.

    Cost: true: messages that the master still takes are lost.
    """

    def __post_init__(self) -> None:
        check_fields(self)
        for key, text in (
            ("followMaster", self.follow_master),
            ("haMasterAddress", self.ha_master_address),
        ):
            host, port = split_address(text)
            if text and (not host or port is None or not 0 < port < 65536):
                raise SettingError(key, text, "expected host:port")
