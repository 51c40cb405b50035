"""KernelEvents: reports purges, deletions and resets to features that have state of their own.

The kernel has changed its own tables before it calls the listeners, in the event loop. Created,
changed and deleted topics are reported by TopicTable.listeners.
"""

from collections.abc import Callable


class KernelEvents:
    """A list of listeners for each event."""

    def __init__(self) -> None:
        self.topic_purged: list[Callable[[str], None]] = []
        """Called with a topic whose messages were all deleted."""
        self.group_forgotten: list[Callable[[str], None]] = []
        """Called with a group that was deleted together with its offsets."""
        self.group_reset: list[Callable[[str, str], None]] = []
        """Called with a group and a topic in which its offsets were set."""
