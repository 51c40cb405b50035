"""GET_BROKER_RUNTIME_INFO (28): the runtime status of a broker in the format of RocketMQ's tools.

Every value is text. Rates are three numbers, over 10, 60 and 600 s. One event loop has no thread
pools and buffers, so their keys report empty ones: ``mqadmin clusterList`` and the exporter fail
without these keys.
"""

from pathlib import Path

from rockhopper.broker.kernel.scheduled.delayed import DelayedDelivery
from rockhopper.broker.observing.stats import BrokerStats, Totals, Traffic
from rockhopper.broker.settings.live_settings import LiveSettings
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.put import PutTimes
from rockhopper.protocol.bodies.topics import ROCKHOPPER_VERSION
from rockhopper.protocol.names import SCHEDULE_TOPIC
from rockhopper.version import own_version

VERSION_DESCRIPTION = "V5_3_3"
MQ_VERSION_ORDINAL = 479

_ZERO_KEYS = (
    "EndTransactionQueueSize",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueSize",
    "dispatchMaxBuffer",
    "getMessageEntireTimeMax",
    "litePullThreadPoolQueueHeadWaitTimeMills",
    "litePullThreadPoolQueueSize",
    "pageCacheLockTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "putMessageEntireTimeMax",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "remainTransientStoreBufferNumbs",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "sendThreadPoolQueueSize",
    "timerCongestNum",
    "timerOffsetBehind",
    "timerReadBehind",
)
# RocketMQ's default capacities; tools show them beside the sizes.
_CAPACITIES = {
    "EndTransactionThreadPoolQueueCapacity": 100_000,
    "ackThreadPoolQueueCapacity": 100_000,
    "litePullThreadPoolQueueCapacity": 100_000,
    "pullThreadPoolQueueCapacity": 100_000,
    "queryThreadPoolQueueCapacity": 20_000,
    "sendThreadPoolQueueCapacity": 10_000,
}


def disk_usage(path: Path) -> tuple[int, int, int]:
    """Return the total, used and free bytes of the disk of *path*, which may not exist yet.

    Blocks, so call it in a thread.
    """
    while not path.exists() and path != path.parent:
        path = path.parent
    return disk.read_usage(path)


def runtime_info(
    live: LiveSettings,
    store: MessageStore,
    stats: BrokerStats,
    delayed: DelayedDelivery,
    now_ms: int,
    log_disk: tuple[int, int, int],
    queue_disk: tuple[int, int, int],
    totals: tuple[Traffic, Traffic],
) -> dict[str, str]:
    """Return all keys.

    ``disk_usage`` provides the disks of log and queues, *totals* the traffic.
    """
    info = dict.fromkeys(_ZERO_KEYS, "0")
    info.update({key: str(capacity) for key, capacity in _CAPACITIES.items()})
    info |= _identity(live, store, stats, now_ms)
    info |= _rates(stats, stats.totals(*totals))
    info |= _totals(stats, store.put_times, *totals)
    info |= _log_state(store, log_disk)
    info["consumeQueueDiskRatio"] = _disk_ratio(queue_disk)
    for level in range(1, delayed.levels.level_max + 1):
        high = store.reading.queue_range(SCHEDULE_TOPIC, level - 1)[1]
        if high > 0:
            info[f"scheduleMessageOffset_{level}"] = f"{delayed.offset(level)},{high}"
    return dict(sorted(info.items()))


def _identity(
    live: LiveSettings, store: MessageStore, stats: BrokerStats, now_ms: int
) -> dict[str, str]:
    booted_ms = stats.booted_ms
    uptime_s = max(now_ms - booted_ms, 0) // 1000
    return {
        "bootTimestamp": str(booted_ms),
        "brokerActive": "true" if store.is_writable else "false",
        "brokerVersion": str(MQ_VERSION_ORDINAL),
        "brokerVersionDesc": VERSION_DESCRIPTION,
        ROCKHOPPER_VERSION: own_version(),
        "runtime": _duration(uptime_s),
        "startAcceptSendRequestTimeStamp": str(live.accept_send_from_ms),
    }


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _rates(stats: BrokerStats, now: Totals) -> dict[str, str]:
    names = {
        "putTps": "put_messages",
        "getTransferredTps": "get_messages",
        # RocketMQ 4 spelt the key like this; its mqadmin clusterList fails without it.
        "getTransferedTps": "get_messages",
        "getFoundTps": "get_found",
        "getMissTps": "get_missed",
        "getTotalTps": "get_total",
    }
    rates = {
        key: " ".join(f"{rate:.4f}" for rate in stats.tps(name, now)) for key, name in names.items()
    }
    return rates | {"timerDequeueTps": "0.0", "timerEnqueueTps": "0.0"}


def _totals(stats: BrokerStats, times: PutTimes, put: Traffic, got: Traffic) -> dict[str, str]:
    average = put.bytes / put.messages if put.messages else 0.0
    return {
        "msgGetTotalTodayMorning": str(stats.get_total_today_morning),
        "msgGetTotalTodayNow": str(got.messages),
        "msgGetTotalYesterdayMorning": str(stats.get_total_yesterday_morning),
        "msgPutTotalTodayMorning": str(stats.put_total_today_morning),
        "msgPutTotalTodayNow": str(put.messages),
        "msgPutTotalYesterdayMorning": str(stats.put_total_yesterday_morning),
        "putMessageAverageSize": f"{average:.4f}",
        "putLatency99": f"{times.percentile_ms(0.99):.2f}",
        "putLatency999": f"{times.percentile_ms(0.999):.2f}",
        "putMessageDistributeTime": times.distribution(),
        "putMessageFailedTimes": str(stats.put_failed),
        "putMessageSizeTotal": str(put.bytes),
        "putMessageTimesTotal": str(put.messages),
    }


def _log_state(store: MessageStore, disk: tuple[int, int, int]) -> dict[str, str]:
    total_bytes, _, free_bytes = disk
    unflushed_bytes = max(store.log.written_offset - store.log.flushed_offset, 0)
    behind_bytes = max(store.log.written_offset - store.dispatch.offset, 0)
    return {
        "commitLogDirCapacity": (
            f"Total : {format_size(total_bytes)}, Free : {format_size(free_bytes)}."
        ),
        "commitLogDiskRatio": _disk_ratio(disk),
        "commitLogMaxOffset": str(store.log.written_offset),
        "commitLogMinOffset": str(store.log.min_offset),
        "dispatchBehindBytes": str(behind_bytes),
        "earliestMessageTimeStamp": str(store.reading.earliest_time_ms),
        "remainHowManyDataToFlush": format_size(unflushed_bytes),
    }


def _disk_ratio(disk: tuple[int, int, int]) -> str:
    # Relative to the space for this user, as in RocketMQ: some free blocks are reserved for root.
    _, used_bytes, free_bytes = disk
    return f"{used_bytes / max(used_bytes + free_bytes, 1):.4f}"


def format_size(size_bytes: int) -> str:
    size, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
