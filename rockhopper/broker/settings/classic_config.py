"""The settings of a master that RocketMQ's slaves follow: the defaults and the costs."""

from dataclasses import dataclass

from rockhopper.broker.settings.setting_fields import check_fields, setting

REPLICAS_MAX = 1000


@dataclass(frozen=True, kw_only=True)
class ClassicConfig:
    """What haMode=classic goes by, beside haListenPort, slaveTimeout and minInSyncReplicas."""

    in_sync_replicas: int = setting("inSyncReplicas", 1, least=1, most=REPLICAS_MAX)
    """How many have a message, this master among them, before a send to a SYNC_MASTER is answered.
    1 waits for nobody, as in RocketMQ. A machine with several slaves counts once.

    Cost: with more than one, the round trip to the slaves for each send.
    """

    transfer_batch_size_bytes: int = setting(
        "haTransferBatchSize", 32 << 10, least=1024, most=1 << 20
    )
    """How much of the log goes into one frame. RocketMQ's slaves take less than 4 MiB.

    Cost: so much memory for each slave; a small one makes more frames.
    """

    max_gap_bytes: int = setting("haMaxGapNotInSync", 256 << 20, least=1, most=1 << 50)
    """A slave that is further behind does not count as in sync for minInSyncReplicas.

    Cost: a large one counts slaves in that would take long to catch up.
    """

    sync_from_last_file: bool = setting("syncFromLastFile", True)
    """Whether a slave with an empty log gets the newest file of the log alone, as from a RocketMQ
    master; else it gets all that there is.

    Cost: false sends the whole log to each slave that is new.
    """

    def __post_init__(self) -> None:
        check_fields(self)
