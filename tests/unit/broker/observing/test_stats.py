"""BrokerStats: rates over windows that a stopped clock makes exact; totals never go back."""

import time

import pytest

from rockhopper.broker.observing.stats import HISTORIES_PER_STEP, SAMPLE_INTERVAL_MS, BrokerStats
from tests.support.peers import Clock


def run(stats: BrokerStats, clock: Clock, samples: int, messages: int = 0) -> None:
    """Let *samples* intervals pass, with *messages* sent to ``orders`` in each."""
    for _ in range(samples):
        clock.advance(SAMPLE_INTERVAL_MS)
        stats.get_send_traffic("orders").count_request(messages, 100 * messages)
        stats.sample()


def test_rates_cover_ten_sixty_and_six_hundred_seconds() -> None:
    clock = Clock()
    stats = BrokerStats(now_ms=clock)
    run(stats, clock, samples=60, messages=0)
    run(stats, clock, samples=1, messages=600)
    assert stats.tps("put_messages") == [60.0, 10.0, 1.0]


def test_rates_of_a_young_broker_cover_its_age() -> None:
    clock = Clock()
    stats = BrokerStats(now_ms=clock)
    assert stats.tps("put_messages") == [0.0, 0.0, 0.0]
    clock.advance(5000)
    stats.get_send_traffic("orders").count_request(50, 5000)
    assert stats.tps("put_messages") == [5.0, 5.0, 5.0]
    clock.advance(15_000)
    assert stats.tps("put_messages") == [2.5, 2.5, 2.5]


def test_pulls_that_found_something_and_nothing_count_apart_and_together() -> None:
    clock = Clock()
    stats = BrokerStats(now_ms=clock)
    stats.get_found, stats.get_missed = 20, 10
    stats.get_pull_traffic("orders", "billing").count_request(640, 1)
    clock.advance(10_000)
    assert stats.tps("get_found")[0] == 2.0
    assert stats.tps("get_missed")[0] == 1.0
    assert stats.tps("get_total")[0] == 3.0
    assert stats.tps("get_messages")[0] == 64.0


def test_stats_items_have_sum_rate_and_average_of_the_last_minute() -> None:
    clock = Clock()
    stats = BrokerStats(now_ms=clock)
    stats.get_send_traffic("orders")
    clock.advance(10_000)
    stats.get_send_traffic("orders").count_request(30, 3000)
    stats.get_send_traffic("orders").count_request(10, 1000)
    minute, hour, day = stats.windows("TOPIC_PUT_NUMS", "orders") or pytest.fail("not counted")
    assert (minute.sum, minute.tps, minute.average_per_call) == (40, 4.0, 20.0)
    assert (hour.sum, day.sum) == (40, 40)
    sizes = stats.windows("TOPIC_PUT_SIZE", "orders")
    assert sizes is not None
    assert sizes[0].sum == 4000
    assert stats.topic_put_tps("orders") == 4.0


def test_a_new_topic_is_not_taken_for_a_busy_one() -> None:
    clock = Clock()
    stats = BrokerStats(now_ms=clock)
    stats.get_send_traffic("orders")
    clock.advance(16)
    stats.get_send_traffic("orders").count_request(3, 300)
    assert stats.topic_put_tps("orders") == 0.3
    clock.advance(10_000 - 16)
    assert stats.topic_put_tps("orders") == 0.3
    clock.advance(20_000)
    assert stats.topic_put_tps("orders") == 0.1


def test_minute_forgets_what_is_older_while_the_hour_remembers() -> None:
    clock = Clock()
    stats = BrokerStats(now_ms=clock)
    stats.get_send_traffic("orders")
    run(stats, clock, samples=1)
    run(stats, clock, samples=1, messages=5)
    run(stats, clock, samples=7)
    minute, hour, _day = stats.windows("TOPIC_PUT_NUMS", "orders") or pytest.fail("not counted")
    assert minute.sum == 0
    assert hour.sum == 5


def test_items_by_group_are_keyed_by_topic_and_group() -> None:
    stats = BrokerStats(now_ms=Clock())
    stats.get_pull_traffic("orders", "billing").count_request(3, 30)
    stats.get_send_back_traffic("orders", "billing").count_request(1, 10)
    stats.dead("orders", "billing").count_request(1, 10)
    for item in ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS", "DLQ_PUT_NUMS"):
        assert stats.windows(item, "orders@billing") is not None
        assert stats.windows(item, "orders@others") is None
    assert stats.windows("NO_SUCH_ITEM", "orders@billing") is None
    assert stats.group_get_tps("orders", "billing") == 0.3
    assert stats.group_get_tps("orders", "others") == 0.0
    assert stats.topic_put_tps("others") == 0.0


def test_counters_are_the_same_object_each_time() -> None:
    stats = BrokerStats(now_ms=Clock())
    assert stats.get_send_traffic("orders") is stats.get_send_traffic("orders")
    assert dict(stats.iterate_by_key("put")) == {"orders": stats.get_send_traffic("orders")}


def test_totals_keep_what_a_deleted_topic_had_counted() -> None:
    stats = BrokerStats(now_ms=Clock())
    stats.get_send_traffic("orders").count_request(7, 70)
    stats.get_send_traffic("orders2").count_request(1, 10)
    stats.get_pull_traffic("orders", "billing").count_request(5, 50)
    stats.get_pull_traffic("orders2", "billing").count_request(1, 1)
    stats.forget_topic("orders")
    assert stats.windows("TOPIC_PUT_NUMS", "orders") is None
    assert stats.windows("TOPIC_PUT_NUMS", "orders2") is not None
    assert stats.windows("GROUP_GET_NUMS", "orders@billing") is None
    assert (stats.total("put").messages, stats.total("put").bytes) == (8, 80)
    assert stats.total("get").messages == 6
    stats.forget_group("billing")
    assert dict(stats.iterate_by_key("get")) == {}
    assert stats.total("get").messages == 6


def test_midnight_moves_the_totals_of_the_day() -> None:
    noon_s = time.mktime((2026, 6, 1, 12, 0, 0, 0, 0, -1))
    clock = Clock(int(noon_s * 1000))
    stats = BrokerStats(now_ms=clock)
    stats.get_send_traffic("orders").count_request(100, 1)
    stats.sample()
    assert stats.put_total_today_morning == 0
    clock.advance(12 * 3_600_000 - 1)
    stats.sample()
    assert stats.put_total_today_morning == 0
    clock.advance(1)
    stats.sample()
    assert stats.put_total_today_morning == 100
    stats.get_send_traffic("orders").count_request(20, 1)
    clock.advance(24 * 3_600_000)
    stats.sample()
    assert (stats.put_total_yesterday_morning, stats.put_total_today_morning) == (100, 120)


def test_what_has_not_moved_is_not_sampled_and_counts_all_the_same() -> None:
    clock = Clock()
    stats = BrokerStats(now_ms=clock)
    run(stats, clock, samples=1, messages=5)
    run(stats, clock, samples=30)
    history = stats.tables["put"]["orders"]
    taken = len(history.samples[0])
    for _ in range(60):
        clock.advance(SAMPLE_INTERVAL_MS)
        stats.sample()
    assert len(history.samples[0]) == taken
    stats.get_send_traffic("orders").count_request(7, 700)
    minute, hour, _ = stats.windows("TOPIC_PUT_NUMS", "orders") or pytest.fail("not counted")
    assert minute.sum == 7
    assert minute.tps == pytest.approx(7 / 70)
    assert hour.sum == 12


def test_the_whole_broker_is_counted_with_and_without_system_topics() -> None:
    clock = Clock()
    stats = BrokerStats(now_ms=clock)
    assert stats.windows_of_broker("BROKER_PUT_NUMS") is None
    stats.get_send_traffic("orders").count_request(5, 50)
    stats.get_send_traffic("SCHEDULE_TOPIC_XXXX").count_request(2, 20)
    stats.get_pull_traffic("orders", "billing").count_request(3, 30)
    stats.get_ack_traffic("orders", "billing").count_request(2, 0)
    stats.get_checkpoint_traffic("orders", "billing").count_request(1, 0)
    stats.producer_registrations.count_call(4)
    sums = {
        "BROKER_PUT_NUMS": 7,
        "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": 5,
        "BROKER_GET_NUMS": 3,
        "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": 3,
        "BROKER_ACK_NUMS": 2,
        "BROKER_CK_NUMS": 1,
        "PRODUCER_REGISTER_TIME": 4,
    }
    for item, expected in sums.items():
        windows = stats.windows_of_broker(item) or pytest.fail(f"{item} is not counted")
        assert [window.sum for window in windows] == [expected] * 3, item
    assert stats.windows_of_broker("CONSUMER_REGISTER_TIME") is None
    clock.advance(80_000)
    stats.sample()
    clock.advance(80_000)
    minute, hour, _ = stats.windows_of_broker("BROKER_PUT_NUMS") or pytest.fail("not counted")
    assert (minute.sum, hour.sum) == (0, 7)


def test_reading_is_timed_for_each_queue_and_its_end_is_remembered() -> None:
    clock = Clock()
    stats = BrokerStats(now_ms=clock)
    traffic = stats.get_pull_traffic("orders", "billing")
    traffic.count_request(3, 30)
    traffic.read(1, 3, 0.0051)
    assert stats.get_pulled_offset("orders", "billing", 1) == 3
    assert stats.get_pulled_offset("orders", "billing", 0) == 0
    assert stats.get_pulled_offset("orders", "others", 0) == 0
    minute, _, _ = stats.windows("GROUP_GET_LATENCY", "1@orders@billing") or pytest.fail("none")
    assert (minute.sum, minute.average_per_call) == (5, 5.0)
    for unknown in ("0@orders@billing", "1@orders@others", "x@orders@billing", "1"):
        assert stats.windows("GROUP_GET_LATENCY", unknown) is None
    stats.forget_topic("orders")
    assert stats.windows("GROUP_GET_LATENCY", "1@orders@billing") is None
    assert stats.get_pulled_offset("orders", "billing", 1) == 0


def test_many_topics_are_sampled_and_summed_up_in_steps() -> None:
    clock = Clock()
    stats = BrokerStats(now_ms=clock)
    for number in range(3 * HISTORIES_PER_STEP):
        stats.get_send_traffic(f"topic-{number}").count_request(1, 10)
    clock.advance(SAMPLE_INTERVAL_MS)
    assert sum(1 for _ in stats.sample_in_steps()) == 6
    minute, _, _ = stats.windows("TOPIC_PUT_NUMS", "topic-0") or pytest.fail("not counted")
    assert minute.sum == 1
    steps = stats.total_in_steps("put")
    next(steps)
    stats.forget_topic("topic-0")
    stats.forget_topic(f"topic-{3 * HISTORIES_PER_STEP - 1}")
    next(steps)
    next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value.messages == stats.total("put").messages == 3 * HISTORIES_PER_STEP
