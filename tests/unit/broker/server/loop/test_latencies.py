"""Histograms of requests: which range, which kind, and no rows that peers make up."""

from rockhopper.broker.server.loop.latencies import (
    BOUNDS_S,
    PULLS,
    SENDS,
    Latencies,
    RequestLabels,
    RequestTimes,
)
from rockhopper.protocol.codes import RequestCode, ResponseCode


def test_a_time_counts_in_the_first_range_that_it_does_not_exceed() -> None:
    times = Latencies()
    times.record(BOUNDS_S[3], 2)
    times.record(BOUNDS_S[3] * 1.01)
    times.record(3600.0)
    assert (times.counts[3], times.counts[4], times.counts[-1]) == (2, 1, 1)
    assert round(times.sum_s - 3600, 4) == round(BOUNDS_S[3] * 3.01, 4)


def test_requests_count_by_code_and_answer() -> None:
    now_s = 1.0
    times = RequestTimes(lambda: now_s)
    times.record_requests(RequestCode.SEND_MESSAGE_V2, 0, 0.5, 3)
    times.record_requests(RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY, 0.0)
    times.record_requests(RequestCode.PULL_MESSAGE, 0, 0.0, has_waited=True)
    counts = {kind: sum(taken.counts) for kind, taken in times.rows()}
    assert counts == {
        RequestLabels("send_message_v2", "success", False, False): 3,
        RequestLabels("send_message_v2", "system_busy", False, False): 1,
        RequestLabels("pull_message", "success", True, False): 1,
    }
    assert (sum(times.combine(SENDS).counts), times.combine(SENDS).sum_s) == (4, 2.5)
    assert (
        sum(times.combine(PULLS).counts) == 0
    )  # what waits for messages says nothing of the broker


def test_codes_that_nobody_knows_share_a_row() -> None:
    times = RequestTimes(lambda: 0.0)
    for code in range(1_000_000, 1_001_000):
        times.record_requests(code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 0.0)
    ((kind, taken),) = times.rows()
    assert kind == RequestLabels("unknown", "unknown", False, False)
    assert sum(taken.counts) == 1000
