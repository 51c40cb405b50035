"""The settings that may change while the broker runs (UPDATE_BROKER_CONFIG, 25).

They stand beside the frozen BrokerConfig and StoreConfig, as their ``live``. Whoever obeys one of
them holds that object and reads the value when it counts; a change is then seen by everybody.
"""

# ruff: noqa: RUF009  (setting() makes fields; it is no shared mutable default)

from dataclasses import dataclass
from enum import Enum

from rockhopper.broker.settings.setting_fields import SettingError, check_fields, setting
from rockhopper.protocol.store.delay_levels import DEFAULT_DELAY_LEVELS, delays_ms
from rockhopper.protocol.sys_flags import PERM_READ, PERM_WRITE


class FlushDiskType(Enum):
    """When a producer gets its answer."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


class AutoCreateTopic(Enum):
    """Which request makes a topic that does not exist."""

    OFF = "off"
    ON_SEND = "on-send"
    ON_LOOKUP = "on-lookup"


class InitialOffset(Enum):
    """Where a new consumer group starts in a queue that still has its first message."""

    COMPAT = "compat"
    STRICT = "strict"


@dataclass(kw_only=True)
class LiveSettings:
    """What the broker allows and how it behaves, as an administrator has it now."""

    broker_permission: int = setting("brokerPermission", 6, least=0, most=7)
    """4 read, 2 write: 4 drains a broker of its writers."""

    @property
    def is_readable(self) -> bool:
        """Whether the broker hands messages out."""
        return bool(self.broker_permission & PERM_READ)

    @property
    def is_writable(self) -> bool:
        """Whether it takes any."""
        return bool(self.broker_permission & PERM_WRITE)

    auto_create_topic: AutoCreateTopic = setting("autoCreateTopic", AutoCreateTopic.ON_SEND)
    """Ours, over autoCreateTopicEnable (true: on-send). on-send makes a topic when a client
    sends to it, as RocketMQ does; on-lookup when its route is asked for, which clients need that
    give up on an unknown topic; off makes a typing error an error.

    Cost: all but off make a topic of a typing error.
    """

    auto_create_subscription_group: bool = setting("autoCreateSubscriptionGroup", True)
    """Whether a consumer may use a group that nobody created.

    Cost: a typing error makes a group, and its retry topic.
    """

    default_topic_queue_nums: int = setting("defaultTopicQueueNums", 8, least=1, most=65536)
    """Most queues that a topic created by a send gets; Java clients ask for 4.

    Cost: 21 KiB of disk for each queue that has a message, and a request that waits for each queue
    and group.
    """

    long_polling: bool = setting("longPollingEnable", True)
    """Park a pull that finds nothing until a message arrives.

    Cost: false has idle clients ask again and again.
    """

    short_polling_ms: int = setting("shortPollingTimeMills", 1000, least=1, most=3_600_000)
    """How long such a pull waits when longPollingEnable is false.

    Cost: latency of so much, at most, for what comes meanwhile; a short one has idle clients ask
    more often.
    """

    reject_pull_consumer: bool = setting("rejectPullConsumerEnable", False)
    """Refuse consumers that pull queues on their own account."""

    slave_read: bool = setting("slaveReadEnable", False)
    """Send readers that are further behind than accessMessageInMemoryMaxRatio to the replica that
    their group names (whichBrokerWhenConsumeSlowly), so that they do not push what is new out of
    the page cache.

    Cost: none here; the replica reads its disk.
    """

    lite_pull: bool = setting("litePullMessageEnable", True)
    """Serve request code 361."""

    property_filter: bool = setting("enablePropertyFilter", True)
    """Evaluate SQL92 expressions over the properties of messages.

    Cost: a pull with an expression reads records that it does not hand out, for at most 8 ms
    of 20.
    """

    filter_support_retry: bool = setting("filterSupportRetry", False)
    """Ask what a group wants of a topic again when a message of it is redelivered: an expression
    that was changed since counts then, too."""

    notify_consumers_changed: bool = setting("notifyConsumerIdsChangedEnable", True)
    """Tell a group's members at once when one comes or goes.

    Cost: a request to each member; without it, members notice after up to 20 s, and read queues
    twice or not at all until then.
    """

    validate_system_topic: bool = setting("validateSystemTopicWhenUpdateTopic", True)
    """Refuse to change system topics on request."""

    mixed_message_type: bool = setting("enableMixedMessageType", False)
    """Allow the topic attribute message.type=MIXED."""

    metrics_queues_max: int = setting("metricsQueuesMax", 10_000, least=0, most=10_000_000)
    """Ours. How many queues of groups have series of their own on /metrics, those that lag first;
    the sums by topic and group are there for all. Cost: some lines of the page for each."""

    initial_offset: InitialOffset = setting("initialOffset", InitialOffset.COMPAT)
    """Ours. Where a new group starts in a queue that still has its first message: ``compat`` at 0
    as RocketMQ does, ``strict`` where the client asks (CONSUME_FROM_LAST_OFFSET means last)."""

    server_side_reset: bool = setting("useServerSideResetOffset", True)
    """Whether a reset (222) waits in the broker for the next pull; else it is pushed (220) to the
    clients that are online."""

    store_reply_messages: bool = setting("storeReplyMessageEnable", True)
    """Keep replies to requests in <cluster>_REPLY_TOPIC as well as pushing them.

    Cost: the disk for each reply, as for a message.
    """

    recall_message_enable: bool = setting("recallMessageEnable", True)
    """Whether producers may recall pending timer messages; off by default in RocketMQ.

    Cost: safety: whoever holds the handle, which only the answer to the send carries, may use it.
    """

    pop_from_retry_percent: int = setting("popFromRetryProbability", 20, least=0, most=100)
    """Percent of pops that look at messages to be redelivered before they look at new ones.

    Cost: a higher one has what is new wait behind what failed.
    """

    pop_from_retry_percent_for_priority: int = setting(
        "popFromRetryProbabilityForPriority", 0, least=0, most=100
    )
    """The same for topics whose message.type is PRIORITY."""

    priority_order_asc: bool = setting("priorityOrderAsc", True)
    """Whether the highest number is the most urgent priority; false: the lowest is."""

    pop_separate_retry_queues: bool = setting("useSeparateRetryQueue", False)
    """Whether a pop retry topic has as many queues as its topic, and messages stay in theirs.

    A topic of type PRIORITY then keeps its order among what is redelivered, too.

    Cost: as many queues again for each group that pops; what exists stays when it is turned off.
    """

    pop_in_flight_max: int = setting("popInflightMessageThreshold", 10_000, least=1, most=1_000_000)
    """Messages that a group may have popped from one queue and not settled; always enforced.

    Cost: memory for each; a low one stops members that are slow to acknowledge.
    """

    reject_transaction_message: bool = setting("rejectTransactionMessage", False)
    """Refuse half messages; transactions that are open can still end."""

    transaction_timeout_ms: int = setting("transactionTimeOut", 6000, least=1, most=86_400_000)
    """How long a producer may be silent about a transaction before it is asked first.

    Cost: a short one has producers asked that are still at work.
    """

    transaction_check_interval_ms: int = setting(
        "transactionCheckInterval", 30_000, least=1, most=86_400_000
    )
    """How often it is asked again.

    Cost: a question for each open transaction each time; nothing else, for each has its own time.
    """

    transaction_check_max: int = setting("transactionCheckMax", 15, least=1, most=1_000_000)
    """Unanswered questions after which a transaction is held in TRANS_CHECK_MAX_TIME_TOPIC.
    While no producer of its group is online none is asked, and none is counted.

    Cost: a small one gives up transactions whose producer hangs.
    """

    delay_levels: str = setting("messageDelayLevel", DEFAULT_DELAY_LEVELS)
    """How long each delay level waits. What is waiting already is delivered by the new times, and
    what waits at a level that is no more by those of the last one."""

    accept_send_from_ms: int = setting("startAcceptSendRequestTimeStamp", 0, least=0)
    """Refuse sends before this Unix time in ms."""

    def __post_init__(self) -> None:
        check_fields(self)
        try:
            delays_ms(self.delay_levels)
        except ValueError as error:
            raise SettingError("messageDelayLevel", self.delay_levels, str(error)) from None


@dataclass(kw_only=True)
class LiveStoreSettings:
    """What the store takes, looks up and keeps, as an administrator has it now."""

    message_size_max_bytes: int = setting("maxMessageSize", 4 << 20, least=1, most=16 << 20)
    """Largest body (MESSAGE_ILLEGAL beyond). Must fit into a commit log file.

    Cost: so much memory for each request under way, and the loop for the time of copying it.
    """

    query_max_count: int = setting("maxMsgsNumBatch", 64, least=1, most=10_000)
    """Most messages that a query by key returns.

    Cost: a read of the log for each, perhaps of the disk.
    """

    query_default_count: int = setting("defaultQueryMaxNum", 32, least=1, most=10_000)
    """Messages that a query by key returns when the client names no number."""

    flush_disk_type: FlushDiskType = setting("flushDiskType", FlushDiskType.ASYNC)
    """ASYNC_FLUSH answers when the message is in the page cache: a power cut loses at most
    flushIntervalCommitLog. SYNC_FLUSH answers when it is on the disk, one fsync per group. In a
    replica set, and with slaves, it changes with a restart only.

    Cost: SYNC_FLUSH adds the time of one fsync to each answer; sends that wait together share
    it.
    """

    file_reserved_hours: int = setting("fileReservedTime", 72, least=0, most=1_000_000)
    """Age at which a commit log file may be deleted, by the time of its last message. When it is
    lowered live, files go only after timers have appended again what would get too old, and open
    transactions have been looked at: some minutes later.

    Cost: the disk for what is sent in that time, and in a day more.
    """

    delete_when: str = setting("deleteWhen", "04")
    """Hours of the day, ``;`` between, at which expired commit log files go.

    Cost: disk: what has expired stays until then.
    """

    clean_interval_ms: int = setting("cleanResourceInterval", 10_000, least=100, most=3_600_000)
    """How often retention looks at times and at the disk.

    Cost: a long one notices a full disk later.
    """

    delete_files_interval_ms: int = setting(
        "deleteCommitLogFilesInterval", 100, least=0, most=3_600_000
    )
    """Pause between two file deletions, so that the disk can breathe.

    Cost: a long one has a full disk stay full for longer.
    """

    delete_files_batch_max: int = setting("deleteFileBatchMax", 10, least=1, most=10_000)
    """Commit log files deleted in one round.

    Cost: more at once has sends wait longer on disks that delete slowly.
    """

    disk_used_percent_max: int = setting("diskMaxUsedSpaceRatio", 75, least=10, most=95)
    """Above this, expired files go at any hour.

    Cost: a high one leaves less room for what comes before the next round.
    """

    disk_clean_forcibly_percent: int = setting("diskSpaceCleanForciblyRatio", 85, least=30, most=95)
    """Above this, the oldest files go even before they expire (cleanFileForciblyEnable).

    Above 85 % it counts as 85 %, as in RocketMQ.

    Cost: messages that have not expired.
    """

    disk_warning_percent: int = setting("diskSpaceWarningLevelRatio", 90, least=35, most=99)
    """Above this, sends are refused with SERVICE_NOT_AVAILABLE.

    Above 90 % it counts as 90 %, as in RocketMQ.

    Cost: sends, above it; too high a value lets the disk fill up.
    """

    clean_file_forcibly: bool = setting("cleanFileForciblyEnable", True)
    """Whether a filling disk may cost messages that have not expired.

    Cost: true: messages that have not expired, also unread ones. false: sends, which are refused
    once the disk is full.
    """

    def __post_init__(self) -> None:
        check_fields(self)
        check_hours("deleteWhen", self.delete_when)


def check_hours(key: str, text: str) -> None:
    """Raise SettingError unless *text* is a list of hours."""
    hours = [hour.strip() for hour in text.split(";") if hour.strip()]
    if not all(hour.isdigit() and int(hour) < 24 for hour in hours):
        raise SettingError(key, text, "hours from 00 to 23 with ; between are allowed")
