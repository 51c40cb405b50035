"""The subscriptions of consumer groups before the broker stopped, cleanly or by kill -9.

A client does not notice that a broker restarted: it reconnects and continues to pull, while its
next heartbeat may be 30 s away. RocketMQ refuses its pulls (24) until then. Here they are filtered
by the group's last heartbeat, which is stored in ``<store>/rockhopper/groups/subscriptions.json``::

    {"groups": {group: {"fingerprint": 0, "subscriptions": [[topic, type, expression, version]]}}}

Groups whose members subscribe differently are not stored. One minute after the start, the stored
subscriptions expire: every live client has sent a heartbeat by then.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import structlog

from rockhopper.broker.kernel.tables.json_table import JsonObject, JsonTable
from rockhopper.broker.server.loop.clock import wall_clock_ms
from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.protocol.errors import SubscriptionError
from rockhopper.protocol.subscription import Subscription

log = structlog.get_logger("broker.tables")

REMEMBERED_MS = 60_000
GROUPS_MAX = 10_000


class RememberedSubscriptions(JsonTable):
    """Group -> its subscriptions, now and before the last start."""

    def __init__(self, path: Path, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        super().__init__(path, now_ms=now_ms)
        self._started_ms = now_ms()
        self._now: dict[str, JsonObject] = {}
        self._before: dict[str, JsonObject] = {}
        self._parsed: dict[str, dict[str, Subscription]] = {}

    def load(self) -> bool:
        """Read the file; without it, the next heartbeats restore the content. Raises OSError."""
        try:
            return super().load()
        except CorruptFileError as error:
            log.warning("remembered subscriptions of groups are lost", reason=str(error))
            return False

    def to_json(self) -> JsonObject:
        """Return the content of the file. It includes groups that have not come back yet."""
        return {"groups": self._now.copy()}

    def from_json(self, document: JsonObject) -> None:
        """Load a stored document. Raises ValueError."""
        groups = document.get("groups")
        if not isinstance(groups, dict):
            raise ValueError("it has no groups")
        self._before = {str(name): dict(entry) for name, entry in groups.items()}
        self._now = dict(self._before)

    def store_subscriptions(
        self, group: str, subscriptions: Mapping[str, Subscription], fingerprint: int
    ) -> None:
        """Store a group's subscriptions; the next save writes them if they changed.

        Members send the same subscriptions in turn, each with its own version and with a
        fingerprint of all its groups. The newest version is kept with its fingerprint, so an
        unchanged group causes no writes.
        """
        entry: JsonObject = {
            "fingerprint": fingerprint,
            "subscriptions": [
                [s.topic, s.expression_type, s.expression, s.version]
                for s in subscriptions.values()
            ],
        }
        known = self._now.get(group)
        if known is not None:
            entry = _newest(known, entry)
        is_other = self._now.pop(group, None) != entry
        # The newest last; beyond the limit the oldest is dropped.
        self._now[group] = entry
        if len(self._now) > GROUPS_MAX:
            del self._now[next(iter(self._now))]
        if is_other:
            self._changed(group)

    def forget(self, group: str) -> None:
        """Delete the subscriptions of *group*."""
        self._before.pop(group, None)
        self._parsed.pop(group, None)
        if self._now.pop(group, None) is not None:
            self._changed(group)

    def entry(self, name: str) -> JsonObject | None:
        """Return the stored subscriptions of a group."""
        return self._now.get(name)

    def take_entry(self, name: str, value: Any) -> None:
        """Store subscriptions; None deletes them."""
        if value is None:
            self.forget(name)
        else:
            self._now[name] = dict(value)
            self._changed(name)

    def begin_anew(self) -> None:
        """Treat the stored subscriptions as those from before a start that happens now."""
        self._before = dict(self._now)
        self._parsed.clear()
        self._started_ms = self._now_ms()

    def _changed(self, group: str) -> None:
        self.mark_changed()
        self.note_entry(group)

    def keep_only(self, groups: Collection[str]) -> None:
        """Delete all groups except these."""
        for group in {*self._now, *self._before}.difference(groups):
            self.forget(group)

    def _entry(self, group: str) -> JsonObject | None:
        if not self._before:
            return None
        if self._now_ms() - self._started_ms > REMEMBERED_MS:
            self._before.clear()
            self._parsed.clear()
            return None
        return self._before.get(group)

    def __contains__(self, group: object) -> bool:
        return isinstance(group, str) and self._entry(group) is not None

    def find(self, group: str, topic: str) -> Subscription | None:
        """Return the subscription of *group* to *topic* before the start."""
        entry = self._entry(group)
        return self._subscriptions(group, entry).get(topic) if entry is not None else None

    def find_all(self, group: str, fingerprint: int) -> dict[str, Subscription]:
        """Return all its subscriptions if *fingerprint* matches; else none."""
        entry = self._entry(group)
        if entry is None or entry.get("fingerprint") != fingerprint:
            return {}
        return dict(self._subscriptions(group, entry))

    def _subscriptions(self, group: str, entry: JsonObject) -> dict[str, Subscription]:
        found = self._parsed.get(group)
        if found is None:
            found = self._parsed[group] = _parse(entry)
        return found


def _newest(known: JsonObject, entry: JsonObject) -> JsonObject:
    """Return *entry*, or *known* if that is equal and not older."""
    versions, known_versions = _versions(entry), _versions(known)
    if versions.keys() != known_versions.keys():
        return entry
    newest = {key: max(version, known_versions[key]) for key, version in versions.items()}
    if newest == known_versions and (known.get("fingerprint") or not entry["fingerprint"]):
        return known
    return {
        "fingerprint": entry["fingerprint"] or known.get("fingerprint"),
        "subscriptions": [[*key, version] for key, version in newest.items()],
    }


def _versions(entry: JsonObject) -> dict[tuple[str, str, str], int]:
    return {
        (topic, expression_type, expression): int(version)
        for topic, expression_type, expression, version in entry.get("subscriptions", ())
    }


def _parse(entry: JsonObject) -> dict[str, Subscription]:
    found = {}
    for topic, expression_type, expression, version in entry.get("subscriptions", ()):
        try:
            found[topic] = Subscription(topic, expression, expression_type, int(version))
        except SubscriptionError:
            continue
    return found
