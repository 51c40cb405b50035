"""The page /metrics: what a serving broker shows, and how little a follower does."""

from rockhopper.broker import Broker
from rockhopper.broker.kernel.families import gauge
from rockhopper.broker.kernel.metrics.broker_metrics import MetricsPage
from rockhopper.broker.settings.config_file import build_config


async def test_a_follower_shows_its_build_its_readiness_and_what_others_add() -> None:
    config = build_config({"brokerName": "broker-a"})
    others = [gauge("rockhopper_others", "Those of other parts").add_sample(7)]
    page = await MetricsPage().render_following(config, others, is_ready=False)
    lines = [line for line in page.body.decode().splitlines() if line.startswith("rockhopper_")]
    names = [line.split("{")[0] for line in lines]
    assert names == ["rockhopper_build_info", "rockhopper_ready", "rockhopper_others"]
    assert lines[1].endswith(" 0.0")
    assert 'node_id="broker-a' in lines[2]


async def test_a_serving_broker_counts_connections_by_port_and_ends_with_what_others_add() -> None:
    page = MetricsPage()
    page.stalls.count = 3
    async with Broker.temporary() as broker:
        others = [gauge("rockhopper_others", "Those of other parts").add_sample(7)]
        shown = await page.render_serving(
            broker.kernel, broker.features.values(), {"broker": 5}, others, is_ready=True
        )
    lines = [line for line in shown.body.decode().splitlines() if line.startswith("ro")]
    assert lines[-1].startswith("rockhopper_others{")
    values = {line.split("{")[0]: line.rsplit(" ", 1)[1] for line in lines}
    assert float(values["rockhopper_ready"]) == 1
    assert float(values["rockhopper_stalls_total"]) == 3
    assert any('"broker"' in line and line.endswith(" 5.0") for line in lines)
