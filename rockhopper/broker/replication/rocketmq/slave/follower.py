"""SlaveFollower: a store that copies a master's, its lag, and the conditions of a takeover.

Opening                                     Closing
    ask the master: file size, log's start      stop copying
    record that this store follows              save the tables
    read the tables, take the master's topics   close the store, dropping half a record
    open the store: lock, recovery              close the connection to the master
    take the tables, start copying

The store is opened with SYNC_FLUSH, whatever the setting. So its queues never contain messages that
a power cut removes from the log. Otherwise recovery would leave a hole for them, although
they can be copied again.

A message enters its queue only after a copy of the tables that was requested after the message
arrived. By then its topic is known, and so is the type of its queues.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from rockhopper.broker.kernel.parts import BrokerCore
from rockhopper.broker.name_server.followed_master import (
    DivergedError,
    FollowError,
    Master,
    MasterFacts,
)
from rockhopper.broker.replication.rocketmq.slave import following_file
from rockhopper.broker.replication.rocketmq.slave.log_copier import LogCopier, check_fits
from rockhopper.broker.replication.rocketmq.slave.table_copies import TableCopies
from rockhopper.broker.server.listening.outgoing import Outgoing
from rockhopper.broker.settings.broker_config import FlushDiskType
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.log import log_start
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.tasks import end_task, keep_running

log = structlog.get_logger("broker.following")

FORCE_HINT = "to serve it anyway, set forceTakeover=true"
LAG_LOG_INTERVAL_S = 30.0
CATCH_UP_TIMEOUT_S = 30.0


class SlaveFollower:
    """The store of *parts* while it follows a master. Belongs to the event loop."""

    def __init__(self, parts: BrokerCore, master_address: str) -> None:
        self._parts = parts
        following = parts.config.following
        self.master_address = master_address
        self._interval_s = following.tables_interval_ms / 1000
        self._outgoing = Outgoing(parts.config.tls)
        self._master = Master(
            master_address, following.ha_master_address, self._outgoing, parts.config.auth.inner
        )
        self._config = parts.config
        self._layout = StoreLayout.from_config(parts.config.store)
        self._master_end = 0
        self._undo = contextlib.AsyncExitStack()
        self._copying = asyncio.Lock()
        self._problem: str | None = None
        self._logged_at_s = 0.0

    async def open(self, store_host: bytes, mapped_files_max: int) -> None:
        """Open the store and start to copy. Blocks during the recovery of the store.

        Raises:
            FollowError: the master cannot be followed, or not with this store.
            StoreError, OSError: the store cannot be opened or created.
        """
        parts, config = self._parts, self._config
        self._undo.callback(self._master.close)
        facts = await self._ask()
        answers = await self._master.tables()
        self._prepare_directory(facts)
        store_config = dataclasses.replace(
            config.store,
            live=dataclasses.replace(config.store.live, flush_disk_type=FlushDiskType.SYNC),
            commit_log_file_size_bytes=facts.log_file_size_bytes,
        )
        parts.config = dataclasses.replace(config, store=store_config)
        parts.load_tables()
        self._copies = TableCopies(parts.tables, self._layout.config / "timercheck")
        self._copies.take_topics(answers)
        parts.open_store(store_host, mapped_files_max)
        await self.store.start()
        self._undo.push_async_callback(self.store.close)
        self._check_store(facts)
        self.store.follow_to(self.store.log.written_offset)
        self.store.retention.expire_before(facts.log_min_offset)
        parts.tables.start()
        self._undo.push_async_callback(parts.tables.close)
        self._copies.store = self.store
        self._copies.copy(answers)
        await self._copies.copy_of_features(self._master.table)
        self._begin_copying()

    def _prepare_directory(self, facts: MasterFacts) -> None:
        """Record that the store follows, and create its log, unless both are done.

        Raises:
            FollowError: there is a store that does not follow.
            StoreError, OSError: the log cannot be created.
        """
        layout = self._layout
        if following_file.read_followed_master(layout) is None and log_start.has_log(
            layout.commit_log
        ):
            raise FollowError(
                f"the store in {layout.root} belongs to a broker and is not a copy: follow "
                f"{self.master_address} with an empty directory (--store)"
            )
        following_file.write(layout, self.master_address)
        if not log_start.has_log(layout.commit_log):
            log_start.begin_at(layout.commit_log, facts.log_file_size_bytes, facts.log_min_offset)

    def _check_store(self, facts: MasterFacts) -> None:
        """Raise DivergedError if the store cannot continue the master's log."""
        name = self._config.broker_name
        if name != facts.broker_name:
            log.warning(
                "brokerName and brokerClusterName differ from the master's, so consumers take "
                "this broker for another one: set them to the master's",
                name=name,
                master_name=facts.broker_name,
            )
        self._compare_meanings(facts)
        check_fits(facts, self.store.log.written_offset)
        holes = self.store.opened.report.holes
        if holes:
            raise DivergedError(
                f"the copy is damaged between offsets {holes[0].start} and {holes[0].end}, "
                f"perhaps by a power cut: follow {self.master_address} with an empty directory"
            )

    def _compare_meanings(self, facts: MasterFacts) -> None:
        """Log the settings that would change the meaning of the copied messages here."""
        config = self._config
        ours = {
            "messageDelayLevel": config.live.delay_levels,
            "timerPrecisionMs": str(config.timer_precision_ms),
            "enableLmq": str(config.store.light_queues_enabled).lower(),
            "enableMultiDispatch": str(config.store.multi_dispatch_enabled).lower(),
        }
        for key, theirs in facts.meanings.items():
            if theirs.split() != ours[key].split():
                log.warning(
                    "a setting that stored messages depend on differs from the master's: set it "
                    "to the master's before a takeover",
                    setting=key,
                    ours=ours[key],
                    theirs=theirs,
                )

    def _begin_copying(self) -> None:
        following = self._parts.config.following
        self._copier = LogCopier(
            self.store,
            self._ask,
            heartbeat_s=following.send_heartbeat_interval_ms / 1000,
            silence_s=following.housekeeping_interval_ms / 1000,
            outgoing=self._outgoing,
        )
        self._run(self._copier.run, "copy-log")
        self._run(self._copy_tables_again, "copy-tables")

    def _run(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        task = keep_running(work, name)

        async def stop() -> None:
            end_task(task)
            await asyncio.gather(task, return_exceptions=True)

        self._undo.push_async_callback(stop)

    @property
    def store(self) -> MessageStore:
        """The store that follows."""
        return self._parts.store

    @property
    def behind_bytes(self) -> int:
        """How many bytes of the master's log are missing here, by its last known end."""
        return max(0, self._master_end - self.store.log.written_offset)

    @property
    def is_copying(self) -> bool:
        """Whether the connection to the master works and delivers the requested bytes."""
        return self._copier.is_connected

    @property
    def master_end(self) -> int:
        """The end of the master's log at the last request."""
        return self._master_end

    def state(self) -> str:
        """Return a status line for the operator."""
        problem = self._copier.problem or self._problem
        return f"following {self.master_address}, {self.behind_bytes} bytes behind" + (
            f"; {problem}" if problem else ""
        )

    async def _ask(self) -> MasterFacts:
        facts = await self._master.facts()
        self._master_end = facts.log_max_offset
        return facts

    async def _copy_tables_again(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.copy_tables()
            except FollowError as error:
                if self._problem is None:
                    log.error("the master's tables cannot be copied", reason=str(error))
                self._problem = str(error)
            else:
                self._problem = None
            self._log_lag()

    async def copy_tables(self) -> None:
        """Copy the current tables; messages up to the present end then enter their queues.

        Raises:
            FollowError: the master does not answer, or its answer is invalid.
        """
        async with self._copying:
            end = self.store.log.written_offset
            self._copies.copy(await self._master.tables())
            await self._copies.copy_of_features(self._master.table)
            low, self._master_end = await self._master.log_range()
            self.store.follow_to(end)
            self.store.retention.expire_before(low)

    def _log_lag(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._logged_at_s + LAG_LOG_INTERVAL_S:
            self._logged_at_s = now_s
            log.info(
                "following",
                master=self.master_address,
                behind_bytes=self.behind_bytes,
                log_end=self.store.log.written_offset,
                dispatched=self.store.dispatch.offset,
            )

    async def check_takeover(self) -> None:
        """Check that a takeover now loses nothing.

        The master accepts no writes, and the copy is complete. This copies the tables once more.

        Raises:
            FollowError: data would be lost; the message names the remedy.
        """
        facts = await self._ask()
        if facts.is_writable:
            raise FollowError(
                f"the master at {self.master_address} still accepts messages, which would be "
                "lost: remove its write permission first (mqadmin updateBrokerConfig -b "
                f"{self.master_address} -k brokerPermission -v 4), and wait until producers have "
                "refreshed the route, about 30 s"
            )
        self._compare_meanings(facts)
        self._check_ends(facts.log_max_offset)
        await self.copy_tables()
        self._check_ends((await self._ask()).log_max_offset)

    def _check_ends(self, master_end: int) -> None:
        end = self.store.log.written_offset
        if end != master_end:
            problem = self._copier.problem
            raise FollowError(
                f"the log of the master at {self.master_address} ends at offset {master_end} and "
                f"the copy at {end}: "
                + (problem or "producers still write to it, or it is not fully copied; try again")
            )

    async def take_over(self, *, force: bool) -> None:
        """Take over when a broker starts, before it serves: check, close the store, stop following.

        With *force* nothing is checked, and the store need not be open.

        Raises:
            FollowError: data would be lost.
            OSError: a table could not be saved, or the note not removed.
        """
        if not force:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
                    await self._copier.caught_up(self._master_end)
            await self.check_takeover()
        await self.close()
        self.forget()

    def forget(self) -> None:
        """Remove the note: the store no longer follows. Raises OSError."""
        following_file.remove(self._layout)

    def metrics(self) -> bytes:
        """Return the metrics for Prometheus while the store follows."""
        gauges = {
            "rockhopper_following_behind_bytes": self.behind_bytes,
            "rockhopper_following_connected": int(self.is_copying),
            "rockhopper_following_log_end": self.store.log.written_offset,
        }
        lines = [f"# TYPE {name} gauge\n{name} {value}\n" for name, value in gauges.items()]
        return "".join(lines).encode()

    async def close(self) -> None:
        """Stop copying and close the store. Raises OSError if a table could not be saved."""
        undo, self._undo = self._undo, contextlib.AsyncExitStack()
        await undo.aclose()
        self._parts.config = self._config
