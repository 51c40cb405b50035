"""The settings that may change while the broker runs (UPDATE_BROKER_CONFIG, 25).

Each class has the settings of one owner: the broker, pulls, pops, transactions, the store. They are
attributes of the frozen BrokerConfig and StoreConfig. Code that uses a setting keeps its object and
reads the value each time, so a change takes effect everywhere.
"""

from enum import Enum

from rockhopper.broker.settings.setting_fields import (
    SettingError,
    check_fields,
    setting,
    settings_dataclass,
)
from rockhopper.protocol.store.delay_levels import DEFAULT_DELAY_LEVELS, delays_ms
from rockhopper.protocol.sys_flags import PERM_READ, PERM_WRITE


class FlushDiskType(Enum):
    """When a send is acknowledged."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


class AutoCreateTopic(Enum):
    """Which request creates a topic that does not exist."""

    OFF = "off"
    ON_SEND = "on-send"
    ON_LOOKUP = "on-lookup"


class InitialOffset(Enum):
    """Where a new consumer group starts in a queue that still has its first message."""

    COMPAT = "compat"
    STRICT = "strict"


@settings_dataclass(frozen=False)
class LiveSettings:
    """The broker's present permissions and behaviour."""

    broker_permission: int = setting("brokerPermission", 6, least=0, most=7)
    """4 read, 2 write: 4 drains a broker, which then refuses sends and still serves pulls."""

    @property
    def is_readable(self) -> bool:
        """Whether the broker delivers messages."""
        return bool(self.broker_permission & PERM_READ)

    @property
    def is_writable(self) -> bool:
        """Whether the broker accepts messages."""
        return bool(self.broker_permission & PERM_WRITE)

    auto_create_topic: AutoCreateTopic = setting("autoCreateTopic", AutoCreateTopic.ON_SEND)
    """Ours, takes precedence over autoCreateTopicEnable (true: on-send). on-send creates a topic
    when a client sends to it, as RocketMQ does. on-lookup creates it when a client asks for its
    route, for clients that give up on an unknown topic. off rejects unknown topics.

    Cost: with anything but off, a typo creates a topic.
    """

    auto_create_subscription_group: bool = setting("autoCreateSubscriptionGroup", True)
    """Whether a consumer may use a group that was not created first.

    Cost: a typo creates a group and its retry topic.
    """

    default_topic_queue_nums: int = setting("defaultTopicQueueNums", 8, least=1, most=65536)
    """The most queues that a topic gets when a send creates it; Java clients ask for 4.

    Cost: 21 KiB of disk for each queue with a message, and one waiting pull for each queue and
    group.
    """

    notify_consumers_changed: bool = setting("notifyConsumerIdsChangedEnable", True)
    """Notify a group's members at once when a member joins or leaves.

    Cost: a request to each member. Without it, members notice after up to 20 s, and until then read
    some queues twice or not at all.
    """

    validate_system_topic: bool = setting("validateSystemTopicWhenUpdateTopic", True)
    """Refuse requests to change system topics."""

    mixed_message_type: bool = setting("enableMixedMessageType", False)
    """Allow the topic attribute message.type=MIXED."""

    metrics_queues_max: int = setting("metricsQueuesMax", 10_000, least=0, most=10_000_000)
    """Ours. How many queues of groups have their own series on /metrics, those with the largest lag
    first. The sums by topic and group always cover all queues.

    Cost: some lines of the page for each queue.
    """

    initial_offset: InitialOffset = setting("initialOffset", InitialOffset.COMPAT)
    """Ours. Where a new group starts in a queue that still has its first message. ``compat``: at 0,
    as in RocketMQ. ``strict``: where the client asks (CONSUME_FROM_LAST_OFFSET means last)."""

    server_side_reset: bool = setting("useServerSideResetOffset", True)
    """Whether an offset reset (222) waits in the broker for the next pull. With false, the broker
    pushes it (220) to the clients that are online."""

    store_reply_messages: bool = setting("storeReplyMessageEnable", True)
    """Store replies to requests in <cluster>_REPLY_TOPIC as well as pushing them.

    Cost: as much disk for each reply as for a message.
    """

    recall_message_enable: bool = setting("recallMessageEnable", True)
    """Whether producers may recall pending timer messages. Off by default in RocketMQ.

    Cost: safety: any client with the handle may use it. Only the answer to the send contains the
    handle.
    """

    delay_levels: str = setting("messageDelayLevel", DEFAULT_DELAY_LEVELS)
    """How long each delay level waits. Messages that already wait are delivered by the new times;
    those at a level that no longer exists, by the time of the last level."""

    accept_send_from_ms: int = setting("startAcceptSendRequestTimeStamp", 0, least=0)
    """Refuse sends before this Unix time in ms."""

    def __post_init__(self) -> None:
        check_fields(self)
        try:
            delays_ms(self.delay_levels)
        except ValueError as error:
            raise SettingError("messageDelayLevel", self.delay_levels, str(error)) from None


@settings_dataclass(frozen=False)
class LivePullSettings:
    """How pulls are served at present."""

    long_polling: bool = setting("longPollingEnable", True)
    """Hold a pull that finds nothing until a message arrives.

    Cost: with false, idle clients poll again and again.
    """

    short_polling_ms: int = setting("shortPollingTimeMills", 1000, least=1, most=3_600_000)
    """How long a pull that finds nothing waits when longPollingEnable is false.

    Cost: up to this much latency for a message that arrives meanwhile; with a short time, idle
    clients poll more often.
    """

    reject_pull_consumer: bool = setting("rejectPullConsumerEnable", False)
    """Refuse pull consumers, which choose their queues themselves."""

    slave_read: bool = setting("slaveReadEnable", False)
    """Send readers that are further behind than accessMessageInMemoryMaxRatio to the replica that
    their group names (whichBrokerWhenConsumeSlowly), so that they do not push new messages out of
    the page cache.

    Cost: none here; the replica reads its disk.
    """

    lite_pull: bool = setting("litePullMessageEnable", True)
    """Serve request code 361."""

    property_filter: bool = setting("enablePropertyFilter", True)
    """Evaluate SQL92 expressions over message properties.

    Cost: a filtered pull also reads records that do not match, for at most 8 ms of every 20.
    """

    filter_support_retry: bool = setting("filterSupportRetry", False)
    """Evaluate the group's filter again when a message is redelivered, so that a changed expression
    applies to it as well."""

    def __post_init__(self) -> None:
        check_fields(self)


@settings_dataclass(frozen=False)
class LivePopSettings:
    """How messages are popped at present."""

    from_retry_percent: int = setting("popFromRetryProbability", 20, least=0, most=100)
    """Percentage of pops that look at messages due for redelivery before new ones.

    Cost: the higher it is, the longer new messages wait behind failed ones.
    """

    from_retry_percent_for_priority: int = setting(
        "popFromRetryProbabilityForPriority", 0, least=0, most=100
    )
    """The same for topics whose message.type is PRIORITY."""

    priority_order_asc: bool = setting("priorityOrderAsc", True)
    """Whether the highest number is the most urgent priority. With false, the lowest is."""

    separate_retry_queues: bool = setting("useSeparateRetryQueue", False)
    """Whether a pop retry topic has as many queues as its topic, and each message stays in its
    queue. A topic of type PRIORITY then keeps its order for redelivered messages as well.

    Cost: as many queues again for each group that pops. Turning it off keeps the existing ones.
    """

    in_flight_max: int = setting("popInflightMessageThreshold", 10_000, least=1, most=1_000_000)
    """How many messages of one queue a group may have in flight: popped and not acknowledged.
    Always enforced.

    Cost: memory for each; a low number blocks members that are slow to acknowledge.
    """

    def __post_init__(self) -> None:
        check_fields(self)


@settings_dataclass(frozen=False)
class LiveTransactionSettings:
    """How long transactions stay open at present, and how often they are checked."""

    reject_transaction_message: bool = setting("rejectTransactionMessage", False)
    """Refuse half messages; open transactions can still end."""

    timeout_ms: int = setting("transactionTimeOut", 6000, least=1, most=86_400_000)
    """How long a half message stays open before the broker first checks the transaction with the
    producer.

    Cost: with a short time, the broker checks producers that are still working.
    """

    check_interval_ms: int = setting("transactionCheckInterval", 30_000, least=1, most=86_400_000)
    """How often the broker repeats the check.

    Cost: one check request for each open transaction each time; nothing else, because each
    transaction has its own time.
    """

    check_count_max: int = setting("transactionCheckMax", 15, least=1, most=1_000_000)
    """After how many unanswered checks a transaction is held in TRANS_CHECK_MAX_TIME_TOPIC. While
    no producer of its group is online, the broker neither checks nor counts.

    Cost: with a small number, a transaction is held when its producer hangs.
    """

    def __post_init__(self) -> None:
        check_fields(self)


@settings_dataclass(frozen=False)
class LiveStoreSettings:
    """The store's present limits, query sizes and retention."""

    message_size_max_bytes: int = setting("maxMessageSize", 4 << 20, least=1, most=16 << 20)
    """The largest body; a larger one gets MESSAGE_ILLEGAL. Must fit into a commit log file.

    Cost: this much memory for each request in progress, and event loop time to copy it.
    """

    query_max_count: int = setting("maxMsgsNumBatch", 64, least=1, most=10_000)
    """The most messages that a query by key returns.

    Cost: a read of the log for each, perhaps from the disk.
    """

    query_default_count: int = setting("defaultQueryMaxNum", 32, least=1, most=10_000)
    """How many messages a query by key returns when the client gives no number."""

    flush_disk_type: FlushDiskType = setting("flushDiskType", FlushDiskType.ASYNC)
    """ASYNC_FLUSH answers when the message is in the page cache: a power cut loses at most
    flushIntervalCommitLog. SYNC_FLUSH answers when it is on the disk; concurrent sends share one
    fsync. In a replica set, and with slaves, a change needs a restart.

    Cost: SYNC_FLUSH adds the time of one fsync to each answer.
    """

    file_reserved_hours: int = setting("fileReservedTime", 72, least=0, most=1_000_000)
    """Age at which a commit log file may be deleted, by the time of its last message. After you
    lower it live, files go some minutes later: first, timers append again what would get too old,
    and the broker checks open transactions.

    Cost: the disk for the messages of that time, and of one more day.
    """

    delete_when: str = setting("deleteWhen", "04")
    """Hours of the day, separated by ``;``, at which expired commit log files are deleted.

    Cost: disk: expired files stay until then.
    """

    clean_interval_ms: int = setting("cleanResourceInterval", 10_000, least=100, most=3_600_000)
    """How often retention checks file ages and the disk.

    Cost: with a long interval, a full disk is noticed later.
    """

    delete_files_interval_ms: int = setting(
        "deleteCommitLogFilesInterval", 100, least=0, most=3_600_000
    )
    """Pause between two file deletions, which spares the disk.

    Cost: with a long pause, a full disk stays full for longer.
    """

    delete_files_batch_max: int = setting("deleteFileBatchMax", 10, least=1, most=10_000)
    """How many commit log files one round deletes.

    Cost: with more at once, sends wait longer on disks that delete slowly.
    """

    disk_used_percent_max: int = setting("diskMaxUsedSpaceRatio", 75, least=10, most=95)
    """Above this disk usage, expired files are deleted at any hour.

    Cost: a high value leaves less room for what arrives before the next round.
    """

    disk_clean_forcibly_percent: int = setting("diskSpaceCleanForciblyRatio", 85, least=30, most=95)
    """Above this disk usage, the oldest files are deleted even before they expire
    (cleanFileForciblyEnable). Above 85 % it counts as 85 %, as in RocketMQ.

    Cost: messages that have not expired.
    """

    disk_warning_percent: int = setting("diskSpaceWarningLevelRatio", 90, least=35, most=99)
    """Above this disk usage, sends are refused with SERVICE_NOT_AVAILABLE. Above 90 % it counts as
    90 %, as in RocketMQ.

    Cost: sends above it are refused; too high a value lets the disk fill up.
    """

    clean_file_forcibly: bool = setting("cleanFileForciblyEnable", True)
    """Whether the broker may delete messages that have not expired when the disk fills up.

    Cost: true: messages that have not expired, even unread ones. false: sends, which are refused
    once the disk is full.
    """

    def __post_init__(self) -> None:
        check_fields(self)
        check_hours("deleteWhen", self.delete_when)


LIVE_PARTS = (
    LiveSettings,
    LivePullSettings,
    LivePopSettings,
    LiveTransactionSettings,
    LiveStoreSettings,
)
"""The classes whose fields may change while the broker runs."""


def check_hours(key: str, text: str) -> None:
    """Raise SettingError unless *text* is a list of hours."""
    hours = [hour.strip() for hour in text.split(";") if hour.strip()]
    if not all(hour.isdigit() and int(hour) < 24 for hour in hours):
        raise SettingError(key, text, "expected hours from 00 to 23, separated by ;")
