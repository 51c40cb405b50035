"""The requests of a follower to its master: those of RocketMQ's slaves, and two more.

    code  what                                for
      21  topics and static topics            messages enter only queues of known topics
      26  settings                            haListenPort, file size, whether it is writable, and
                                              the meaning of stored messages
      28  runtime info                        the beginning and end of its log
      43  consumer offsets                    groups continue where they were
      45  delay offsets                       delayed messages are delivered from there on
      60  timer checkpoint (since 5.0)        the same for timed messages
     201  groups
     402  pop request modes (since 5.0)

The listen port answers all of them; RocketMQ's own slaves send some to the port two below.
"""

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple, TypeVar

from rockhopper.broker.name_server.link import NameServiceLink, RefusedError
from rockhopper.broker.server.listening.outgoing import PLAIN, Outgoing
from rockhopper.protocol import fastjson
from rockhopper.protocol.addresses import join_address, split_address
from rockhopper.protocol.bodies.properties_text import decode_properties_text
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.signing import Credentials

ANSWER_TIMEOUT_S = 10.0
SAMPLED_WITHIN_S = (0.5, 0.5, 1.0)
_PERM_WRITE = 2

_CLASSIC_ALONE = "only masters with classic replication can be followed"
_OTHER_KINDS = {
    "enableControllerMode": f"under a controller: {_CLASSIC_ALONE}",
    "enableDLegerCommitLog": f"with a DLedger commit log: {_CLASSIC_ALONE}",
    # Data in RocksDB is neither in the log nor in a table that slaves request.
    "timerRocksDBEnable": (
        "with timers in RocksDB, so this broker cannot know which are delivered: switch to files "
        "(mqadmin switchTimerEngine -e F), and restart it without the setting"
    ),
    "popConsumerKVServiceEnable": (
        "with popped messages in RocksDB, so unacknowledged ones would be lost here: restart it "
        "without the setting, and let it move them to its log by request code 200056 "
        "(POP_ROLLBACK)"
    ),
    "transRocksDBEnable": "with open transactions in RocksDB, which would be lost here: wait "
    "until they have ended, and restart it without the setting",
}

MEANINGS = ("messageDelayLevel", "timerPrecisionMs", "enableLmq", "enableMultiDispatch")
"""Settings that determine the meaning of stored messages; they must not change in a takeover."""

Result = TypeVar("Result")


class FollowError(Exception):
    """Following or a takeover is impossible; the message names the remedy."""


class DivergedError(FollowError):
    """The copy is not a prefix of the master's log: nothing is copied, and nothing is truncated."""


class MasterFacts(NamedTuple):
    """The present state of a master."""

    log_min_offset: int
    log_max_offset: int
    log_file_size_bytes: int
    ha_address: str
    broker_name: str
    is_writable: bool
    """Whether clients may send to it."""
    meanings: dict[str, str]
    """Its values of MEANINGS, as far as it reports them."""


class MasterTables(NamedTuple):
    """The master's tables as received; None if it has no such table."""

    topics: bytes
    groups: bytes
    consumer_offsets: bytes
    delay_offsets: bytes
    timer_check: bytes | None


class Master:
    """One master, over one connection that is opened when needed."""

    def __init__(
        self,
        address: str,
        ha_address: str = "",
        outgoing: Outgoing = PLAIN,
        credentials: Credentials | None = None,
    ) -> None:
        """*ha_address* overrides the address that the master reports."""
        self.address = address
        self._ha_address = ha_address
        self._link = NameServiceLink(address, outgoing=outgoing, credentials=credentials)

    async def facts(self) -> MasterFacts:
        """Return the master's present state.

        Raises:
            FollowError: it does not answer, or cannot be followed in this state.
        """
        body = await self._body(RequestCode.GET_BROKER_CONFIG)
        low, high = await self.log_range()
        try:
            settings = decode_properties_text(body)
            self._refuse_other_kinds(settings)
            return MasterFacts(
                low,
                high,
                int(settings["mappedFileSizeCommitLog"]),
                self._ha_address or self._ha_address_by(settings),
                settings["brokerName"],
                self._is_writable(settings),
                {key: settings[key] for key in MEANINGS if key in settings},
            )
        except (ProtocolError, KeyError, ValueError) as error:
            raise FollowError(
                f"{self.address} does not return its settings as RocketMQ does ({error}): is it "
                "the listenPort of a broker?"
            ) from None

    def _refuse_other_kinds(self, settings: dict[str, str]) -> None:
        for key, what in _OTHER_KINDS.items():
            if settings.get(key, "").lower() == "true":
                raise FollowError(f"{self.address} has {key}=true and runs {what}")

    def _ha_address_by(self, settings: dict[str, str]) -> str:
        host, _ = split_address(self.address)
        return join_address(host, int(settings["haListenPort"]))

    @staticmethod
    def _is_writable(settings: dict[str, str]) -> bool:
        may_write = int(settings.get("brokerPermission", "6")) & _PERM_WRITE
        return bool(may_write) and settings.get("brokerRole") != "SLAVE"

    async def log_range(self) -> tuple[int, int]:
        """Return the beginning and end of the master's log. Raises FollowError."""
        body = await self._runtime_info()
        try:
            table = fastjson.loads(body)["table"]
            # A log without any file begins at -1.
            return max(0, int(table["commitLogMinOffset"])), int(table["commitLogMaxOffset"])
        except (ProtocolError, ValueError, KeyError, TypeError) as error:
            raise FollowError(
                f"{self.address} does not return the bounds of its log ({error}): is it the "
                "listenPort of a broker?"
            ) from None

    async def _runtime_info(self) -> bytes:
        """Return the runtime info.

        Retry, because RocketMQ 5.5 fails this for a second after its start.
        """
        for pause_s in SAMPLED_WITHIN_S:
            answer = await self._wait_for(self._link.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {}))
            if answer.code != ResponseCode.SYSTEM_ERROR:
                break
            await asyncio.sleep(pause_s)
        return await self._body(RequestCode.GET_BROKER_RUNTIME_INFO)

    async def tables(self) -> MasterTables:
        """Return the master's present tables. Raises FollowError."""
        return MasterTables(
            await self._body(RequestCode.GET_ALL_TOPIC_CONFIG),
            await self._body(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
            await self._body(RequestCode.GET_ALL_CONSUMER_OFFSET),
            await self._body(RequestCode.GET_ALL_DELAY_OFFSET),
            await self._body_if_known(RequestCode.GET_TIMER_CHECK_POINT),
        )

    async def _body(self, code: RequestCode) -> bytes:
        answer = await self._wait_for(self._link.call(code, {}))
        return answer.body

    async def table(self, request: str) -> bytes | None:
        """Return the table that the request of this name asks for; None if the master has none.

        Raises FollowError.
        """
        return await self._body_if_known(RequestCode[request])

    async def _body_if_known(self, code: RequestCode) -> bytes | None:
        """Return the answer's body; None if the master does not support *code*."""
        answer = await self._wait_for(self._link.ask(code, {}))
        return answer.body if answer.code == ResponseCode.SUCCESS and answer.body else None

    async def _wait_for(self, answer: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await answer
        except TimeoutError:
            reason = f"no answer within {ANSWER_TIMEOUT_S:.0f} s"
        except OSError as error:
            reason = error.strerror or str(error)
        except RefusedError as error:
            reason = str(error)
        raise FollowError(f"cannot query the master at {self.address}: {reason}") from None

    def close(self) -> None:
        """Close the connection."""
        self._link.close()
