"""The state of transactions: how often producers were asked. Half messages are in the log."""

from rockhopper.broker.feature import State
from rockhopper.broker.features.transactions.check_counts import CheckCounts
from rockhopper.broker.kernel.state_channels import Channel
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.store_layout import StoreLayout


class CheckCountState(State):
    """The counts of checks."""

    def __init__(self, layout: StoreLayout, clock: BrokerClock) -> None:
        self.counts = CheckCounts(layout.own / "transactions.json", now_ms=clock.steady_ms)
        self.tables = {self.counts: Channel.GATHERED}
