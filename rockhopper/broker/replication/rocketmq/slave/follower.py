"""Follower: a store that copies a master's, how far it is, and whether it may take over.

Opening                                     Closing
    the master asked: file size, log's start    copying stops
    the note that this store follows            tables saved
    tables read, the master's topics taken      store closed: half a record is forgotten
    store: lock, recovery                       connection to the master closed
    tables taken, copying begins

The store is opened with SYNC_FLUSH, whatever is set: its queues then never know of messages that a
power cut takes away, which would make a hole of what only has to be copied again.

A message comes into its queue once tables were copied that were asked for after it was here: its
topic is known then, and of what type its queues are.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from rockhopper.broker.features.pop.request_modes import MessageRequestModeTable
from rockhopper.broker.kernel.parts import ServingParts
from rockhopper.broker.name_server.followed_master import (
    DivergedError,
    FollowError,
    Master,
    MasterFacts,
)
from rockhopper.broker.replication.rocketmq.slave import note
from rockhopper.broker.replication.rocketmq.slave.log_copier import LogCopier, check_fits
from rockhopper.broker.replication.rocketmq.slave.table_copies import TableCopies
from rockhopper.broker.server.listening.outgoing import Outgoing
from rockhopper.broker.settings.broker_config import FlushDiskType
from rockhopper.broker.settings.delay_levels import DelayLevels
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.log import log_start
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.tasks import end_task, keep_running

log = structlog.get_logger("broker.following")

FORCE_HINT = "to serve it all the same, set forceTakeover=true"
LAG_LOG_INTERVAL_S = 30.0
CATCH_UP_TIMEOUT_S = 30.0


class Follower:
    """The store of *parts* while it follows. Belongs to the event loop."""

    def __init__(self, parts: ServingParts, master_address: str) -> None:
        self._parts = parts
        following = parts.config.following
        self.master_address = master_address
        self._interval_s = following.tables_interval_ms / 1000
        self._outgoing = Outgoing(parts.config.tls)
        self._master = Master(
            master_address, following.ha_master_address, self._outgoing, parts.config.auth.inner
        )
        self._config = parts.config
        self._layout = StoreLayout.of(parts.config.store)
        self._modes = MessageRequestModeTable(
            self._layout.config / "messageRequestMode.json", now_ms=parts.now_ms
        )
        self._master_end = 0
        self._undo = contextlib.AsyncExitStack()
        self._copying = asyncio.Lock()
        self._problem: str | None = None
        self._logged_at_s = 0.0

    @classmethod
    def wanted(cls, parts: ServingParts) -> "Follower | None":
        """The follower that settings or the store ask for; None if it is a broker's own.

        Its master is blank if neither can tell which one it was.
        """
        noted = note.followed_master(StoreLayout.of(parts.config.store))
        master = parts.config.following.follow_master or noted
        return None if master is None else cls(parts, master)

    async def open(self, store_host: bytes, levels: DelayLevels, mapped_files_max: int) -> None:
        """Open the store, and begin to copy. Blocks while the store is recovered.

        Raises:
            FollowError: the master cannot be followed, or not with this store.
            StoreError, OSError: the store cannot be opened or made.
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
        self._modes.load()
        self._copies = TableCopies(parts.tables, self._modes, self._layout.config / "timercheck")
        self._copies.take_topics(answers)
        parts.open_store(store_host, levels, mapped_files_max)
        await self.store.start()
        self._undo.push_async_callback(self.store.close)
        self._check_store(facts)
        self.store.follow_to(self.store.max_commit_log_offset)
        self.store.expire_before(facts.log_min_offset)
        parts.tables.start()
        self._undo.push_async_callback(parts.tables.close)
        self._modes.start_saving()
        self._undo.push_async_callback(self._modes.saved)
        self._copies.on_deleted = self._delete_queues
        self._copies.take(answers)
        self._begin_copying()

    def _prepare_directory(self, facts: MasterFacts) -> None:
        """Note that the store follows, and begin its log, unless that is done.

        Raises:
            FollowError: there is a store that follows nobody.
            StoreError, OSError: the log cannot be begun.
        """
        layout = self._layout
        if note.followed_master(layout) is None and log_start.has_log(layout.commit_log):
            raise FollowError(
                f"the store in {layout.root} is a broker's own, and no copy: follow "
                f"{self.master_address} with an empty directory (--store)"
            )
        note.write(layout, self.master_address)
        if not log_start.has_log(layout.commit_log):
            log_start.begin_at(layout.commit_log, facts.log_file_size_bytes, facts.log_min_offset)

    def _check_store(self, facts: MasterFacts) -> None:
        """Raise DivergedError if the store cannot go on with the master's log."""
        name = self._config.broker_name
        if name != facts.broker_name:
            log.warning(
                "brokerName and brokerClusterName differ from the master's, so consumers take "
                "this broker for another one: set them to the master's",
                name=name,
                master_name=facts.broker_name,
            )
        self._compare_meanings(facts)
        check_fits(facts, self.store.max_commit_log_offset)
        holes = self.store.opened.report.holes
        if holes:
            raise DivergedError(
                f"the copy is damaged between offsets {holes[0].start} and {holes[0].end}, as a "
                f"power cut may leave it: follow {self.master_address} with an empty directory"
            )

    def _compare_meanings(self, facts: MasterFacts) -> None:
        """Log the settings that would give the copied messages another meaning here."""
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
        """How much of the master's log is not here, as far as is known."""
        return max(0, self._master_end - self.store.max_commit_log_offset)

    @property
    def is_copying(self) -> bool:
        """Whether the connection to the master stands and brings what is asked for."""
        return self._copier.is_connected

    @property
    def master_end(self) -> int:
        """Where the master's log ended when it was asked last."""
        return self._master_end

    def state(self) -> str:
        """One line for the operator."""
        problem = self._copier.problem or self._problem
        return f"following {self.master_address}, {self.behind_bytes} bytes behind" + (
            f"; {problem}" if problem else ""
        )

    async def _ask(self) -> MasterFacts:
        facts = await self._master.facts()
        self._master_end = facts.log_max_offset
        return facts

    def _delete_queues(self, topics: list[str]) -> None:
        self.store.delete_topics(topics).remove()

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
        """Copy the tables as they are now; messages up to here come into their queues.

        Raises:
            FollowError: the master does not answer, or not as it should.
        """
        async with self._copying:
            end = self.store.max_commit_log_offset
            self._copies.take(await self._master.tables())
            low, self._master_end = await self._master.log_range()
            self.store.follow_to(end)
            self.store.expire_before(low)

    def _log_lag(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._logged_at_s + LAG_LOG_INTERVAL_S:
            self._logged_at_s = now_s
            log.info(
                "following",
                master=self.master_address,
                behind_bytes=self.behind_bytes,
                log_end=self.store.max_commit_log_offset,
                dispatched=self.store.dispatched_offset,
            )

    async def check_takeover(self) -> None:
        """Return if nothing is lost by a takeover now: nobody writes there, and all of it is here.

        The tables are copied once more.

        Raises:
            FollowError: it would be; the sentence says what to do first.
        """
        facts = await self._ask()
        if facts.is_writable:
            raise FollowError(
                f"the master at {self.master_address} still takes messages, which would be lost: "
                "take its write permission first (mqadmin updateBrokerConfig -b "
                f"{self.master_address} -k brokerPermission -v 4), and wait until producers have "
                "asked for the route again, some 30 s"
            )
        self._compare_meanings(facts)
        self._check_ends(facts.log_max_offset)
        await self.copy_tables()
        self._check_ends((await self._ask()).log_max_offset)

    def _check_ends(self, master_end: int) -> None:
        end = self.store.max_commit_log_offset
        if end != master_end:
            problem = self._copier.problem
            raise FollowError(
                f"the log of the master at {self.master_address} ends at offset {master_end} and "
                f"the copy at {end}: "
                + (problem or "it is still written to, or not all of it is copied; try again")
            )

    async def end(self, *, force: bool) -> None:
        """Take over at the start of a broker, before it serves: check, close the store, forget.

        With *force* nothing is asked; the store need not be open.

        Raises:
            FollowError: something would be lost.
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
        """The store is a broker's own from now on. Raises OSError."""
        note.remove(self._layout)

    def metrics(self) -> bytes:
        """What Prometheus scrapes meanwhile."""
        gauges = {
            "rockhopper_following_behind_bytes": self.behind_bytes,
            "rockhopper_following_connected": int(self.is_copying),
            "rockhopper_following_log_end": self.store.max_commit_log_offset,
        }
        lines = [f"# TYPE {name} gauge\n{name} {value}\n" for name, value in gauges.items()]
        return "".join(lines).encode()

    async def close(self) -> None:
        """Stop copying and close the store. Raises OSError when a table could not be saved."""
        undo, self._undo = self._undo, contextlib.AsyncExitStack()
        await undo.aclose()
        self._parts.config = self._config
