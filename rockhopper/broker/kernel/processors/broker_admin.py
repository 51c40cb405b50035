"""The broker itself: settings (25, 26), its state (28), statistics (315) and delay offsets (45)."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

import structlog

from rockhopper.broker.kernel.members.guarding import access_text
from rockhopper.broker.kernel.processors.runtime_info import disk_usage, runtime_info
from rockhopper.broker.kernel.scheduled.delayed import DelayedDelivery
from rockhopper.broker.kernel.tables.json_table import TableVersion
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.cooperative_work import run_in_slices
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    Response,
    Row,
    administers,
)
from rockhopper.broker.server.remoting.json_bodies import json_response, refusal
from rockhopper.broker.server.remoting.permissions import CHANGE_CLUSTER, SEE_CLUSTER
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import (
    change_live,
    is_live,
    parse_properties,
    parts_of,
    properties_of,
)
from rockhopper.broker.settings.setting_fields import SettingError, settings_of, unit_of
from rockhopper.broker.settings.store_config import FlushDiskType
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.errors import NoPermission, Refusal
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies import KVTable
from rockhopper.protocol.bodies.setting_facts import SettingFacts, Value, encode_facts
from rockhopper.protocol.bodies.topics import ACCESS
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.requests import GetBrokerConfigResponse, encode_fields
from rockhopper.protocol.requests.fields import RpcRequest

log = structlog.get_logger("broker.admin")

CONFIG_SIZE_BYTES_MAX = 65_536
# RocketMQ refuses these since its settings ended in a shell command (CVE-2023-33246).
_BLACK_LIST = frozenset(("brokerConfigPath", "configBlackList", "rocketmqHome"))
_PATH_WORDS = ("path", "home")
_SECRET_WORDS = ("secret", "password", "credential", "token", "accesskey")
_MASK = "******"
_DEFAULTS = properties_of(BrokerConfig())


class ViewBrokerStatsDataRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """The header of VIEW_BROKER_STATS_DATA (315)."""

    stats_name: str
    stats_key: str


class ConfigurableBroker(Protocol):
    """A broker of which settings can change while it runs."""

    def change_config(self, config: BrokerConfig) -> None:
        """Apply changed run-time settings."""


@dataclass(eq=False, repr=False)
class BrokerAdminProcessors:
    """Serves queries and changes of the broker as a whole."""

    _config: BrokerConfig
    _store: MessageStore
    _delayed: DelayedDelivery
    _stats: BrokerStats
    _now_ms: Callable[[], int]
    _steady_ms: Callable[[], int]
    _broker: ConfigurableBroker
    _config_version: TableVersion = field(init=False)
    _at_start: dict[str, str] = field(default_factory=dict)
    """The start values of settings that were changed since."""

    def __post_init__(self) -> None:
        self._config_version = TableVersion(0, self._now_ms())

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.UPDATE_BROKER_CONFIG: administers(self.update_config, CHANGE_CLUSTER),
            Code.GET_BROKER_CONFIG: administers(self.get_config, SEE_CLUSTER, promises_state=False),
            Code.DESCRIBE_CONFIG: administers(
                self.describe_config, SEE_CLUSTER, promises_state=False
            ),
            Code.GET_BROKER_RUNTIME_INFO: administers(
                self.get_runtime_info, SEE_CLUSTER, promises_state=False
            ),
            Code.VIEW_BROKER_STATS_DATA: administers(
                self.view_stats, SEE_CLUSTER, promises_state=False
            ),
            Code.GET_ALL_DELAY_OFFSET: administers(
                self.all_delay_offsets, SEE_CLUSTER, promises_state=False
            ),
        }

    async def update_config(self, request: Request) -> Response:
        """25: change live settings until the next start; broker.conf is not changed.

        Only live settings may change, and never one that contains a path. If a request
        contains anything forbidden, it changes nothing.
        """
        if len(request.body) > CONFIG_SIZE_BYTES_MAX:
            raise Refusal(
                f"{len(request.body)} bytes of settings; {CONFIG_SIZE_BYTES_MAX} are allowed"
            )
        try:
            changes = parse_properties(request.body.decode(errors="replace"))
        except SettingError as error:
            raise refusal(error) from None
        for key in changes:
            lower = key.lower()
            if key in _BLACK_LIST or any(word in lower for word in _PATH_WORDS):
                raise NoPermission("Can not update config in black list.")
        config = self._changed(changes)
        if (
            config.store.flush_disk_type is FlushDiskType.ASYNC
            and self._config.store.flush_disk_type is FlushDiskType.SYNC
        ):
            try:
                await asyncio.to_thread(self._store.note_async_flush)
            except OSError as error:
                raise refusal(
                    error, "flushDiskType is unchanged, because the store cannot record it: "
                ) from None
            config = self._changed(changes)
        before = properties_of(self._config)
        after = properties_of(config)
        changed = {key: value for key, value in after.items() if before.get(key) != value}
        if changed:
            self._at_start = {key: before[key] for key in changed} | self._at_start
            self._broker.change_config(config)
            self._config_version.advance(self._now_ms())
            log.info(
                "settings changed until the next start",
                peer=request.connection.peer,
                changed=changed,
            )
        return Response()

    def _changed(self, changes: Mapping[str, str]) -> BrokerConfig:
        try:
            return change_live(self._config, changes)
        except SettingError as error:
            raise refusal(error) from None

    def get_config(self, _request: Request) -> Response:
        """26: return every setting as ``key=value``; secrets are masked."""
        lines = [
            f"{key}={_MASK if value and _is_secret(key) else value}\n"
            for key, value in properties_of(self._config).items()
        ]
        version = fastjson.dumps(self._config_version.to_json())
        return Response(
            ext=encode_fields(GetBrokerConfigResponse(version=version)),
            body="".join(lines).encode(),
        )

    def describe_config(self, _request: Request) -> Response:
        """70019: return every setting with its default, its unit, and whether it changes live."""
        typed = {
            known.key: (field, getattr(part, field.name))
            for part in parts_of(self._config)
            for field, known in settings_of(part)
        }

        def facts(key: str, text: str) -> SettingFacts:
            default: Value = _DEFAULTS[key]
            value: Value = _MASK if text and _is_secret(key) else text
            unit = ""
            if key in typed:
                field, own = typed[key]
                unit = unit_of(field.name)
                if isinstance(own, int):
                    value, default = own, cast(Value, field.default)
            is_changed = self._at_start.get(key, text) != text
            return SettingFacts(key, value, default, unit, is_live(key), is_changed)

        now = properties_of(self._config)
        return Response(body=encode_facts([facts(*item) for item in now.items()]))

    async def get_runtime_info(self, _request: Request) -> Response:
        """28: return the runtime status."""
        layout = self._store.opened.layout
        log_disk = await asyncio.to_thread(disk_usage, layout.commit_log)
        queue_disk = await asyncio.to_thread(disk_usage, layout.consume_queues)
        info = runtime_info(
            self._config.live,
            self._store,
            self._stats,
            self._delayed,
            self._steady_ms(),
            log_disk,
            queue_disk,
            (
                await run_in_slices(self._stats.total_in_steps("put")),
                await run_in_slices(self._stats.total_in_steps("get")),
            ),
        )
        return json_response(KVTable({**info, ACCESS: access_text(self._config)}))

    async def view_stats(self, request: Request) -> Response:
        """315: return messages or bytes by minute, hour and day.

        They are those of a topic, of a group in a topic, or of all topics.
        """
        fields = request.fields(ViewBrokerStatsDataRequest)
        stats = self._stats
        windows = stats.windows(fields.stats_name, fields.stats_key)
        if windows is None and fields.stats_key == self._config.cluster_name:
            windows = await run_in_slices(stats.windows_of_broker_in_steps(fields.stats_name))
        if windows is None:
            raise Refusal(f"The stats <{fields.stats_name}> <{fields.stats_key}> not exist")
        body = {
            name: {"avgpt": window.average_per_call, "sum": window.sum, "tps": window.tps}
            for name, window in zip(("statsMinute", "statsHour", "statsDay"), windows, strict=True)
        }
        return json_response(body)

    def all_delay_offsets(self, _request: Request) -> Response:
        """45: return the delivery offsets of the delay levels in their file's format."""
        self._delayed.settle()
        return json_response(self._delayed.table.to_json())


def _is_secret(key: str) -> bool:
    lower = key.lower()
    return any(word in lower for word in _SECRET_WORDS)
