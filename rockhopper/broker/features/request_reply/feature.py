"""The declaration of request and reply."""

from rockhopper.broker.feature import FeaturePart, NoState
from rockhopper.broker.features.request_reply.processors import ReplyProcessor
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.store_layout import StoreLayout


class RequestReplyPart(FeaturePart):
    """Request and reply in one broker."""

    def __init__(self, kernel: Kernel) -> None:
        replies = ReplyProcessor(
            kernel.config,
            kernel.store,
            kernel.producers,
            kernel.sender,
            kernel.sends,
            kernel.clock.wall_ms,
        )
        kernel.listeners.append(replies)
        self.processors = replies.rows()


class RequestReplyFeature:
    """A consumer answers a message, and the broker pushes the answer to its sender."""

    name = "request_reply"
    requires: tuple[str, ...] = ()
    tests: tuple[str, ...] = (
        "tests/integration/test_request_reply.py",
        "tests/unit/broker/features/request_reply",
        # Pages that describe it.
        "tests/unit/docs/site/test_compatibility_page.py::test_each_code_is_served_or_listed",
        "tests/unit/docs/site/test_compatibility_page.py::test_the_page_is_up_to_date",
    )

    def state(self, layout: StoreLayout, clock: BrokerClock) -> NoState:
        """Return no state: pending requests are lost in a restart."""
        return NoState()

    def build(self, kernel: Kernel, state: NoState) -> RequestReplyPart:
        """Return the part that serves replies."""
        return RequestReplyPart(kernel)
