"""Every setting of the broker, its store and its name service: the default, and what it costs.

Each field is one key of RocketMQ's broker.conf, or one of ours where the docstring says so.
Values come, later over earlier, from the defaults here, ``-c broker.conf``, the environment
(ROCKHOPPER_<KEY>) and flags: see config_file.py.
"""

# ruff: noqa: RUF009  (setting() makes fields; it is no shared mutable default)

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from broker.advertise import AdvertiseRule, parse_rule, split_address
from broker.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from broker.settings import SettingError, check_fields, setting

ROCKETMQ_QUEUE_UNIT_BYTES = 20
ROCKETMQ_BATCH_QUEUE_UNIT_BYTES = 46


class FlushDiskType(Enum):
    """When a producer gets its answer."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


class AutoCreateTopic(Enum):
    """Which request makes a topic that does not exist."""

    OFF = "off"
    ON_SEND = "on-send"
    ON_LOOKUP = "on-lookup"


class Role(Enum):
    """What this process serves."""

    ALL = "all"
    BROKER = "broker"
    NAMESERVER = "nameserver"


class InitialOffset(Enum):
    """Where a new consumer group starts in a queue that still has its first message."""

    COMPAT = "compat"
    STRICT = "strict"


class BrokerRole(Enum):
    """RocketMQ's replication roles; there are no slaves yet, so both masters are the same."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """The store directory: sizes, flushing, reading, retention."""

    root: Path = setting("storePathRootDir", Path("data"))
    """The store directory.  One broker at a time; created when missing."""

    commit_log_directory: Path | None = setting("storePathCommitLog", None)
    """Where the commit log is when not in ``<storePathRootDir>/commitlog``: on a faster disk."""

    commit_log_file_size_bytes: int = setting(
        "mappedFileSizeCommitLog", 1 << 30, least=4096, most=(1 << 31) - 1
    )
    """One commit log file, reserved on disk when it is created.  Small files roll often; the size
    in a store that exists is taken from its files."""

    consume_queue_file_size_bytes: int = setting(
        "mappedFileSizeConsumeQueue",
        300_000 * ROCKETMQ_QUEUE_UNIT_BYTES,
        least=20,
        most=(1 << 31) - 20,
    )
    """One consume queue file, 20 bytes a message, rounded up to whole entries.  Every queue that
    has a message has at least one: 1,000 queues reserve 6 GB at the default."""

    batch_consume_queue_file_size_bytes: int = setting(
        "mapperFileSizeBatchConsumeQueue",
        300_000 * ROCKETMQ_BATCH_QUEUE_UNIT_BYTES,
        least=46,
        most=(1 << 31) - 46,
    )
    """The same for topics of type BatchCQ, 46 bytes a batch.  The key is RocketMQ's spelling."""

    index_slot_count: int = setting("maxHashSlotNum", 5_000_000, least=1, most=1 << 28)
    """Hash slots of an index file, 4 bytes each.  A store keeps the geometry it was made with:
    another value is refused."""

    index_entry_count_max: int = setting("maxIndexNum", 20_000_000, least=2, most=1 << 26)
    """Keys in one index file, 20 bytes each; the store's geometry, as above."""

    index_enabled: bool = setting("messageIndexEnable", True)
    """Whether messages can be found by key.  Off saves about a tenth of the cost of a send."""

    flush_disk_type: FlushDiskType = setting("flushDiskType", FlushDiskType.ASYNC)
    """ASYNC_FLUSH answers when the message is in the page cache: a power cut loses at most
    flushIntervalCommitLog.  SYNC_FLUSH answers when it is on the disk, one fsync per group."""

    flush_interval_ms: int = setting("flushIntervalCommitLog", 500, least=1, most=3_600_000)
    """How often the commit log goes to disk under ASYNC_FLUSH: what a power cut may cost."""

    consume_queue_flush_interval_ms: int = setting(
        "flushIntervalConsumeQueue", 1000, least=10, most=3_600_000
    )
    """How often consume queues are looked at for flushing."""

    consume_queue_flush_thorough_interval_ms: int = setting(
        "flushConsumeQueueThoroughInterval", 60_000, least=100, most=3_600_000
    )
    """Flush every dirty queue this often: bounds what a crash must replay."""

    sync_flush_timeout_ms: int = setting("syncFlushTimeout", 5000, least=1, most=3_600_000)
    """After this long under SYNC_FLUSH the producer is told FLUSH_DISK_TIMEOUT (stored, durability
    not known)."""

    flush_waiting_bytes_max: int = setting(
        "flushWaitingBytesMax", 64 << 20, least=1 << 20, most=1 << 40
    )
    """Ours.  Bytes appended and not yet flushed under SYNC_FLUSH before sends get SYSTEM_BUSY."""

    message_size_max_bytes: int = setting(
        "maxMessageSize", 4 << 20, least=1, most=16 << 20, live=True
    )
    """Largest body (MESSAGE_ILLEGAL beyond).  Must fit into a commit log file."""

    check_crc_on_recover: bool = setting("checkCRCOnRecover", True)
    """Compare body checksums when the log is scanned after a crash; about 1 s per 3 GB."""

    query_max_count: int = setting("maxMsgsNumBatch", 64, least=1, most=10_000)
    """Most messages that a query by key returns."""

    query_default_count: int = setting("defaultQueryMaxNum", 32, least=1, most=10_000)
    """Messages that a query by key returns when the client names no number."""

    transfer_bytes_in_memory_max: int = setting(
        "maxTransferBytesOnMessageInMemory", 256 << 10, least=1, most=16 << 20
    )
    """Bytes of messages in one pull answer.  Old clients decode into a buffer of 1 MB."""

    transfer_count_in_memory_max: int = setting(
        "maxTransferCountOnMessageInMemory", 32, least=1, most=10_000
    )
    """Messages in one pull answer, whatever the client asks for."""

    transfer_bytes_on_disk_max: int = setting(
        "maxTransferBytesOnMessageInDisk", 64 << 10, least=1, most=16 << 20
    )
    """The same for messages too old to be in the page cache."""

    transfer_count_on_disk_max: int = setting(
        "maxTransferCountOnMessageInDisk", 8, least=1, most=10_000
    )
    """The same for messages too old to be in the page cache."""

    in_memory_ratio_max: int = setting("accessMessageInMemoryMaxRatio", 40, least=1, most=100)
    """Percent of physical memory behind the log's end that counts as in the page cache."""

    filter_message_size_max: int = setting("maxFilterMessageSize", 16_000, least=1, most=1 << 24)
    """Consume queue entries, in multiples of 20 bytes, that one filtered pull looks at."""

    delete_when: str = setting("deleteWhen", "04")
    """Hours of the day, ``;`` between, at which expired commit log files go."""

    file_reserved_hours: int = setting("fileReservedTime", 72, least=0, most=1_000_000)
    """Age at which a commit log file may be deleted, by the time of its last message."""

    clean_interval_ms: int = setting("cleanResourceInterval", 10_000, least=100, most=3_600_000)
    """How often retention looks at times and at the disk."""

    delete_files_interval_ms: int = setting(
        "deleteCommitLogFilesInterval", 100, least=0, most=3_600_000
    )
    """Pause between two file deletions, so that the disk can breathe."""

    delete_files_batch_max: int = setting("deleteFileBatchMax", 10, least=1, most=10_000)
    """Commit log files deleted in one round."""

    disk_used_percent_max: int = setting("diskMaxUsedSpaceRatio", 75, least=10, most=95)
    """Above this, expired files go at any hour."""

    disk_clean_forcibly_percent: int = setting("diskSpaceCleanForciblyRatio", 85, least=30, most=95)
    """Above this, the oldest files go even before they expire (cleanFileForciblyEnable)."""

    disk_warning_percent: int = setting("diskSpaceWarningLevelRatio", 90, least=35, most=99)
    """Above this, sends are refused with SERVICE_NOT_AVAILABLE."""

    clean_file_forcibly: bool = setting("cleanFileForciblyEnable", True)
    """Whether a filling disk may cost messages that have not expired."""

    scrub_bytes_per_second: int = setting("scrubBytesPerSecond", 2 << 20, least=0, most=1 << 40)
    """Ours.  How much of the commit log a second the scrub reads to find what has rotted; a record
    counts as 1 KiB at least.  2 MiB take about 2 % of a core.  0 turns it off."""

    scrub_off_peak_bytes_per_second: int = setting(
        "scrubOffPeakBytesPerSecond", 8 << 20, least=0, most=1 << 40
    )
    """Ours.  The same in the hours of scrubOffPeakWhen."""

    scrub_off_peak_when: str = setting("scrubOffPeakWhen", "02;03")
    """Ours.  Hours of the day, ``;`` between, in which few are about; empty for none."""

    scrub_interval_ms: int = setting("scrubInterval", 3_600_000, least=10, most=1 << 40)
    """Ours.  How long the scrub rests between two passes over the log."""

    light_queues_enabled: bool = setting("enableLmq", False)
    """Whether there are light queues (``%LMQ%…``): they need no topic, and a message may be in
    many of them.  Each that has a message takes 16 KiB of disk and a directory."""

    multi_dispatch_enabled: bool = setting("enableMultiDispatch", False)
    """Whether messages go to the light queues that their property INNER_MULTI_DISPATCH names."""

    light_queue_quota: bool = setting("enableLmqQuota", False)
    """Whether maxLmqConsumeQueueNum counts."""

    light_queue_count_max: int = setting("maxLmqConsumeQueueNum", 20_000, least=1, most=1 << 31)
    """Most light queues; a message that would make another is refused."""

    def __post_init__(self) -> None:
        check_fields(self)
        _round_up(self, "consume_queue_file_size_bytes", ROCKETMQ_QUEUE_UNIT_BYTES)
        _round_up(self, "batch_consume_queue_file_size_bytes", ROCKETMQ_BATCH_QUEUE_UNIT_BYTES)
        if self.commit_log_directory is not None and "," in str(self.commit_log_directory):
            raise SettingError(
                "storePathCommitLog", self.commit_log_directory, "one directory is allowed, no list"
            )
        _check_hours("deleteWhen", self.delete_when)
        _check_hours("scrubOffPeakWhen", self.scrub_off_peak_when)


def _check_hours(key: str, text: str) -> None:
    hours = [hour.strip() for hour in text.split(";") if hour.strip()]
    if not all(hour.isdigit() and int(hour) < 24 for hour in hours):
        raise SettingError(key, text, "hours from 00 to 23 with ; between are allowed")


def _round_up(config: StoreConfig, name: str, unit_bytes: int) -> None:
    size_bytes = getattr(config, name)
    object.__setattr__(config, name, -(-size_bytes // unit_bytes) * unit_bytes)


@dataclass(frozen=True, kw_only=True)
class NameServiceConfig:
    """What the name service answers, embedded or alone."""

    order_message_enable: bool = setting("orderMessageEnable", False)
    """Fill orderTopicConf of a route from the key-value namespace ORDER_TOPIC_CONFIG."""

    all_topic_list_enable: bool = setting("enableAllTopicList", True)
    """Whether code 206 may list every topic."""

    topic_list_enable: bool = setting("enableTopicList", True)
    """Whether codes 224 and 311 to 313 may list topics."""

    delete_topic_with_registration: bool = setting("deleteTopicWithBrokerRegistration", False)
    """Drop what a broker's next registration no longer names.  Off as in RocketMQ, where a broker
    may register its topics one by one; the embedded broker's deletions show at once anyway."""

    scan_interval_ms: int = setting("scanNotActiveBrokerInterval", 5000, least=10, most=3_600_000)
    """How often silent brokers are looked for."""

    broker_expiry_ms: int = setting("brokerExpiryMillis", 120_000, least=100, most=86_400_000)
    """Ours.  Silence after which a broker is dropped when its registration names no time."""

    def __post_init__(self) -> None:
        check_fields(self)


def parse_address(text: str) -> str:
    """*text* when it is host:port.  Raises ValueError that says what is allowed."""
    host, port = split_address(text)
    if not host or port is None or not 0 < port < 65536:
        raise ValueError(f"{text!r} is no address: host:port with ; between is allowed")
    return text


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """The process: who it is, where it listens, what it allows."""

    store: StoreConfig = StoreConfig()
    name_service: NameServiceConfig = NameServiceConfig()

    role: Role = setting("role", Role.ALL)
    """Ours.  ``all``: a broker with an embedded name service; ``broker`` or ``nameserver``: one of
    them, for several brokers under one name service."""

    broker_name: str = setting("brokerName", "broker-a")
    """The broker's name in routes.  Two brokers under one name service need two names."""

    cluster_name: str = setting("brokerClusterName", "DefaultCluster")
    """The cluster that operators' tools show."""

    broker_id: int = setting("brokerId", 0, least=0, most=0)
    """0 is the master.  There are no slaves yet."""

    broker_role: BrokerRole = setting("brokerRole", BrokerRole.ASYNC_MASTER)
    """There are no slaves yet, so SYNC_MASTER waits for nobody."""

    bind_address: str = setting("bindAddress", "127.0.0.1")
    """Where all ports listen.  The default keeps strangers out: there are no passwords.
    0.0.0.0 opens the ports to the network."""

    listen_port: int = setting("listenPort", 10911, least=0, most=65535)
    """The broker's port; 0 picks a free one, which the first log line names."""

    vip_channel_enabled: bool = setting("vipChannelEnabled", False)
    """Ours, by the clients' name for it.  Whether the broker also listens two ports below
    listenPort (10909), unless that is 0: Java clients before 4.5.1 send, commit and look for their
    group there unless they are told not to.  Where somebody else has it, that is warned of."""

    namesrv_port: int = setting("namesrvPort", 9876, least=0, most=65535)
    """Ours.  The name service's port; 0 picks a free one."""

    http_port: int = setting("httpPort", 9464, least=-1, most=65535)
    """Ours.  /healthz, /readyz and /metrics; 0 picks a free one, -1 opens none."""

    namesrv_addr: tuple[str, ...] = setting("namesrvAddr", (), element=parse_address)
    """Name services elsewhere to register with as well, host:port with ``;`` between."""

    broker_ip1: str = setting("brokerIP1", "")
    """The host that routes and registrations name.  Empty: each client is told the address at
    which it reached the name service itself, see advertise."""

    advertise: tuple[AdvertiseRule, ...] = setting(
        "advertise", (), separator=",", element=parse_rule
    )
    """Ours.  Which client is told which address: ``network=host:port`` with ``,`` between, first
    match wins; ``gateway`` and ``subnet`` name the container's gateway and network, ``self`` the
    address a client arrived at.  Before brokerIP1."""

    remote_admin: bool = setting("remoteAdmin", False)
    """Ours.  Whether administrative requests from other hosts are served.  There are no passwords:
    whoever reaches the port may then delete topics."""

    broker_permission: int = setting("brokerPermission", 6, least=0, most=7, live=True)
    """4 read, 2 write: 4 drains a broker of its writers."""

    auto_create_topic: AutoCreateTopic = setting(
        "autoCreateTopic", AutoCreateTopic.ON_SEND, live=True
    )
    """Ours, over autoCreateTopicEnable (true: on-send).  on-send makes a topic when a client sends
    to it, as RocketMQ does; on-lookup when its route is asked for, which clients need that give up
    on an unknown topic; off makes a typing error an error."""

    auto_create_subscription_group: bool = setting("autoCreateSubscriptionGroup", True, live=True)
    """Whether a consumer may use a group that nobody created."""

    default_topic_queue_nums: int = setting(
        "defaultTopicQueueNums", 8, least=1, most=65536, live=True
    )
    """Most queues that a topic created by a send gets; Java clients ask for 4."""

    cluster_topic_enable: bool = setting("clusterTopicEnable", True)
    """Whether the topic named like the cluster may be used."""

    broker_topic_enable: bool = setting("brokerTopicEnable", True)
    """Whether the topic named like the broker may be used."""

    trace_topic_enable: bool = setting("traceTopicEnable", False)
    """Create the topic for clients' message traces at the start."""

    trace_topic_name: str = setting("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC")
    """Where clients send their traces."""

    trace_on: bool = setting("traceOn", True)
    """Tell producers that traces are wanted."""

    sink_staged_bytes_max: int = setting("sinkStagedBytesMax", 4 << 30, least=1 << 20, most=1 << 50)
    """Ours.  Bytes that jobs may stage for sinks (exactly-once batches) and not publish; beyond, a
    stage request is refused like a send to a full disk."""

    sink_staged_expire_ms: int = setting(
        "sinkStagedExpireMs", 3_600_000, least=1000, most=30 * 86_400_000
    )
    """Ours.  Staged parts that nobody added to or published for so long are deleted: what a job
    leaves that was killed."""

    region_id: str = setting("regionId", "DefaultRegion")
    """The region that send answers name."""

    long_polling: bool = setting("longPollingEnable", True, live=True)
    """Park a pull that finds nothing until a message arrives."""

    short_polling_ms: int = setting(
        "shortPollingTimeMills", 1000, least=1, most=3_600_000, live=True
    )
    """How long such a pull waits when longPollingEnable is false."""

    reject_pull_consumer: bool = setting("rejectPullConsumerEnable", False, live=True)
    """Refuse consumers that pull queues on their own account."""

    lite_pull: bool = setting("litePullMessageEnable", True, live=True)
    """Serve request code 361."""

    property_filter: bool = setting("enablePropertyFilter", True, live=True)
    """Evaluate SQL92 expressions over the properties of messages.  A pull with one reads records
    that it does not hand out, for at most 8 ms of 20."""

    filter_support_retry: bool = setting("filterSupportRetry", False, live=True)
    """Ask what a group wants of a topic again when a message of it is redelivered: an expression
    that was changed since counts then, too."""

    notify_consumers_changed: bool = setting("notifyConsumerIdsChangedEnable", True, live=True)
    """Tell a group's members at once when one comes or goes."""

    validate_system_topic: bool = setting("validateSystemTopicWhenUpdateTopic", True, live=True)
    """Refuse to change system topics on request."""

    mixed_message_type: bool = setting("enableMixedMessageType", False, live=True)
    """Allow the topic attribute message.type=MIXED."""

    initial_offset: InitialOffset = setting("initialOffset", InitialOffset.COMPAT, live=True)
    """Ours.  Where a new group starts in a queue that still has its first message: ``compat`` at 0
    as RocketMQ does, ``strict`` where the client asks (CONSUME_FROM_LAST_OFFSET means last)."""

    server_side_reset: bool = setting("useServerSideResetOffset", True, live=True)
    """Whether a reset (222) waits in the broker for the next pull; else it is pushed (220) to the
    clients that are online."""

    store_reply_messages: bool = setting("storeReplyMessageEnable", True, live=True)
    """Keep replies to requests in <cluster>_REPLY_TOPIC as well as pushing them."""

    delay_levels: str = setting("messageDelayLevel", DEFAULT_DELAY_LEVELS)
    """How long each delay level waits.  Changing it delays what is waiting already by the new
    times."""

    timer_wheel_enable: bool = setting("timerWheelEnable", True)
    """Whether producers may name a time of delivery.  What is pending is delivered either way."""

    timer_max_delay_s: int = setting("timerMaxDelaySec", 259_200, least=1, most=100 * 31_557_600)
    """The longest delay that a producer may ask for.  What waits longer than two thirds of
    fileReservedTime is appended to the commit log again, once in each such time."""

    timer_precision_ms: int = setting("timerPrecisionMs", 1000, least=100, most=1000)
    """The precision with which RocketMQ wrote the timer messages that it left pending: 100, 200,
    500 or 1000.  Messages taken by this broker are delivered to the millisecond."""

    recall_message_enable: bool = setting("recallMessageEnable", True, live=True)
    """Whether producers may recall pending timer messages; off by default in RocketMQ.  Whoever
    holds the handle, which only the answer to the send carries, may use it."""

    pop_from_retry_percent: int = setting(
        "popFromRetryProbability", 20, least=0, most=100, live=True
    )
    """Percent of pops that look at messages to be redelivered before they look at new ones."""

    pop_from_retry_percent_for_priority: int = setting(
        "popFromRetryProbabilityForPriority", 0, least=0, most=100, live=True
    )
    """The same for topics whose message.type is PRIORITY."""

    priority_order_asc: bool = setting("priorityOrderAsc", True, live=True)
    """Whether the highest number is the most urgent priority; false: the lowest is."""

    pop_in_flight_max: int = setting(
        "popInflightMessageThreshold", 10_000, least=1, most=1_000_000, live=True
    )
    """Messages that a group may have popped from one queue and not settled; always enforced."""

    reject_transaction_message: bool = setting("rejectTransactionMessage", False, live=True)
    """Refuse half messages; transactions that are open can still end."""

    transaction_timeout_ms: int = setting(
        "transactionTimeOut", 6000, least=1, most=86_400_000, live=True
    )
    """How long a producer may be silent about a transaction before it is asked first."""

    transaction_check_interval_ms: int = setting(
        "transactionCheckInterval", 30_000, least=1, most=86_400_000, live=True
    )
    """How often it is asked again.  RocketMQ looks at all of them at this interval; here each has
    its own time, so a short interval costs nothing but the questions."""

    transaction_check_max: int = setting(
        "transactionCheckMax", 15, least=1, most=1_000_000, live=True
    )
    """Unanswered questions after which a transaction is held in TRANS_CHECK_MAX_TIME_TOPIC.  While
    no producer of its group is online none is asked, and none is counted."""

    accept_send_from_ms: int = setting("startAcceptSendRequestTimeStamp", 0, least=0, live=True)
    """Refuse sends before this Unix time in ms."""

    offsets_flush_interval_ms: int = setting(
        "flushConsumerOffsetInterval", 5000, least=10, most=3_600_000
    )
    """How often committed offsets go to disk: what consumers repeat after a crash."""

    offsets_version_step: int = setting("consumerOffsetUpdateVersionStep", 500, least=1)
    """Commits per step of the offset table's version."""

    register_interval_ms: int = setting("registerNameServerPeriod", 30_000, least=100, most=60_000)
    """How often this broker registers with the name services of namesrvAddr; topic changes at
    once."""

    register_timeout_ms: int = setting("registerBrokerTimeoutMills", 24_000, least=10, most=600_000)
    """How long one registration may take."""

    def __post_init__(self) -> None:
        check_fields(self)
        for key, name in (
            ("brokerName", self.broker_name),
            ("brokerClusterName", self.cluster_name),
        ):
            if not re.fullmatch(r"[\w.%|-]{1,127}", name, re.ASCII):
                raise SettingError(
                    key, name, "letters, digits, '_', '-', '%', '|', '.' are allowed"
                )
        try:
            DelayLevels(self.delay_levels)
        except ValueError as error:
            raise SettingError("messageDelayLevel", self.delay_levels, str(error)) from None
