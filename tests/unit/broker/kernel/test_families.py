"""The page that Prometheus scrapes, read by Prometheus' own library."""

from prometheus_client.parser import text_string_to_metric_families

from rockhopper.broker.kernel.families import counter, gauge, histogram, render
from rockhopper.broker.server.loop.latencies import Latencies
from rockhopper.broker.settings.broker_config import BrokerConfig

HOSTILE = 'a"b\\c\nd'


async def test_the_page_says_what_was_noted_whatever_the_labels_hold() -> None:
    times = Latencies()
    times.record(0.002, 3)
    page, content_type = await render(
        BrokerConfig(),
        [
            gauge("a_gauge", "One", "topic").add_sample(7, HOSTILE),
            None,
            counter("a_total", "Two").add_sample(8),
            histogram("a_seconds", "Three", "what").observe(times, "x", bounds_s=(0.001, 0.003)),
        ],
    )
    assert content_type.startswith("text/plain")
    found = {each.name: each for each in text_string_to_metric_families(page.decode())}
    (sample,) = found["a_gauge"].samples
    assert (sample.value, sample.labels["topic"]) == (7, HOSTILE)
    assert sample.labels["node_id"] == "broker-a"
    assert found["a"].samples[0].value == 8
    values = {(each.name, each.labels.get("le")): each.value for each in found["a_seconds"].samples}
    assert values["a_seconds_bucket", "0.001"] == 0
    assert values["a_seconds_bucket", "0.003"] == values["a_seconds_bucket", "+Inf"] == 3
    assert values["a_seconds_count", None] == 3
    assert round(values["a_seconds_sum", None], 6) == 0.006
