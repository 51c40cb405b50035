"""The settings of a master that RocketMQ's slaves follow: defaults and costs."""

from rockhopper.broker.settings.setting_fields import check_fields, setting, settings_dataclass

REPLICAS_MAX = 1000


@settings_dataclass(frozen=True)
class ClassicConfig:
    """The settings for haMode=classic, besides haListenPort, slaveTimeout and minInSyncReplicas."""

    in_sync_replicas: int = setting("inSyncReplicas", 1, least=1, most=REPLICAS_MAX)
    """How many brokers must have a message, this master included, before a SYNC_MASTER answers a
    send. 1 waits for none, as in RocketMQ. A machine with several slaves counts once.

    Cost: with more than one, a round trip to the slaves for each send.
    """

    transfer_batch_size_bytes: int = setting(
        "haTransferBatchSize", 32 << 10, least=1024, most=1 << 20
    )
    """How much of the log goes into one frame. RocketMQ's slaves accept less than 4 MiB.

    Cost: this much memory for each slave; a small value makes more frames.
    """

    max_gap_bytes: int = setting("haMaxGapNotInSync", 256 << 20, least=1, most=1 << 50)
    """A slave that is further behind does not count as in sync for minInSyncReplicas.

    Cost: a large value counts slaves that need long to catch up.
    """

    sync_from_last_file: bool = setting("syncFromLastFile", True)
    """Whether a slave with an empty log gets only the newest file of the log, as from a RocketMQ
    master. With false, it gets the whole log.

    Cost: false sends the whole log to each new slave.
    """

    def __post_init__(self) -> None:
        check_fields(self)
