"""Histograms on /metrics: cumulative, and with RocketMQ's ranges for rocketmq_rpc_latency."""

from rockhopper.broker.kernel.metrics.broker_metrics import latency_families
from rockhopper.broker.server.loop.latencies import Latencies, RequestTimes
from rockhopper.protocol.codes import RequestCode


def test_the_histograms_are_cumulative_and_in_their_units() -> None:
    times = RequestTimes(lambda: 0.004)
    times.record_requests(RequestCode.SEND_MESSAGE_V2, 0, 0.0, 5)
    flushes = Latencies()
    flushes.record(20.0)
    shown = {family.name: family.histograms for family in latency_families(times, flushes)}
    ((labels, buckets, total),) = shown["rocketmq_rpc_latency"]
    assert labels == ("remoting", "send_message_v2", "success", "false", "success")
    assert buckets[:4] == [("1.0", 0), ("3.0", 0), ("5.0", 5), ("7.0", 5)]
    assert (buckets[-1], total) == (("+Inf", 5), 20.0)
    ((_, buckets, total),) = shown["rockhopper_send_latency_seconds"]
    assert dict(buckets)["0.003"] == 0
    assert dict(buckets)["0.005"] == dict(buckets)["10.0"] == 5
    ((_, buckets, total),) = shown["rockhopper_flush_latency_seconds"]
    assert (dict(buckets)["10.0"], dict(buckets)["+Inf"], total) == (0, 1, 20.0)
