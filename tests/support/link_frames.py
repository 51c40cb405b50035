"""A receiver of the frames of a link."""

from rockhopper.broker.replication.election.wire import Frame
from rockhopper.broker.replication.shipping.link import Link


class Frames:
    """Keeps the frames of a link."""

    def __init__(self) -> None:
        self.found: list[Frame] = []

    def received(self, _link: Link, frame: Frame) -> None:
        """Keep *frame*."""
        self.found.append(frame)
