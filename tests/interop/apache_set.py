"""A set of three brokers of Apache in controller mode: as safe as its settings go.

    controllers   three JVMs, each with a name server as well, as ours have
    brokers       three JVMs; an answer needs all of the in-sync set, two at least

Who leads is asked of the controllers, for they decide.
"""

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from tests.interop import apache
from tests.interop.apache import ApacheServer
from tests.support.direct import ask
from tests.support.free_ports import free_port, free_ports

NAME = "broker-a"
SAFE = {
    "brokerName": NAME,
    "enableControllerMode": "true",
    "totalReplicas": "3",
    "inSyncReplicas": "2",
    "minInSyncReplicas": "2",
    "allAckInSyncStateSet": "true",
    "autoCreateTopicEnable": "false",
}
"""What the documents of controller mode name for an answer that no failover takes back."""
ANSWER_TIMEOUT_S = 1.0
HEAP_MB = 384


@dataclass
class Process:
    """One JVM: how to start it, and it while it runs."""

    directory: Path
    settings: dict[str, str]
    broker_port: int | None = None
    namesrv_port: int | None = None
    server: ApacheServer | None = field(default=None)

    async def start(self) -> None:
        """Start it, unless it runs."""
        if self.server is None:
            self.server = await asyncio.to_thread(
                apache.start,
                self.directory,
                settings=self.settings,
                broker_port=self.broker_port,
                namesrv_port=self.namesrv_port,
                heap_mb=HEAP_MB,
            )

    def kill(self) -> None:
        """As a crash."""
        server, self.server = self.server, None
        if server is not None:
            server.kill()

    async def stop(self) -> None:
        """As an operator."""
        server, self.server = self.server, None
        if server is not None:
            await asyncio.to_thread(server.process.stop)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self.server is not None:
            os.kill(self.server.pid, number)


class ApacheSet:
    """All of it; ``start`` to ``kill``."""

    def __init__(self, directory: Path) -> None:
        controllers, names = free_ports(3), free_ports(3)
        peers = ";".join(f"n{each}-127.0.0.1:{port}" for each, port in enumerate(controllers))
        self.nameserver = ";".join(f"127.0.0.1:{port}" for port in names)
        self.controllers = {
            f"127.0.0.1:{port}": Process(
                directory / f"controller-{each}",
                {
                    "controllerDLegerGroup": "group",
                    "controllerDLegerPeers": peers,
                    "controllerDLegerSelfId": f"n{each}",
                    "controllerStorePath": str(directory / f"controller-{each}" / "data"),
                },
                namesrv_port=names[each],
            )
            for each, port in enumerate(controllers)
        }
        self.brokers = {
            f"127.0.0.1:{port}": Process(
                directory / f"broker-{port}",
                SAFE
                | {
                    "namesrvAddr": self.nameserver,
                    "controllerAddr": ";".join(self.controllers),
                },
                broker_port=port,
            )
            for port in (free_port(below=[2]) for _ in range(3))
        }
        for process in self.brokers.values():
            process.settings["haListenPort"] = str(free_port())

    async def start(self) -> None:
        """Start what does not run; return when all JVMs answer."""
        await asyncio.gather(*(each.start() for each in self.controllers.values()))
        await asyncio.gather(*(each.start() for each in self.brokers.values()))

    def kill(self) -> None:
        """End everything."""
        for each in [*self.brokers.values(), *self.controllers.values()]:
            each.kill()

    async def leader(self) -> str:
        """Which controller leads them; blank if none does."""
        told = await self._told(RequestCode.CONTROLLER_GET_METADATA_INFO, {})
        return str((told.ext or {}).get("controllerLeaderAddress") or "") if told else ""

    async def master(self) -> str:
        """The address of the broker that is the master; blank if none is."""
        told = await self._told(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": NAME})
        return str((told.ext or {}).get("masterAddress") or "") if told else ""

    async def in_sync(self) -> int:
        """How many brokers are in the in-sync set."""
        told = await self._told(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": NAME})
        if not told or not told.body:
            return 0
        found: dict[str, Any] = fastjson.loads(told.body)
        return len(found.get("syncStateSet") or ())

    async def elect_another(self) -> None:
        """Have the controllers make another in-sync broker the master, as `mqadmin electMaster`.

        Raises:
            RuntimeError: they refuse.
        """
        told = await self._told(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": NAME})
        assert told is not None
        master = int((told.ext or {})["masterBrokerId"])
        members = fastjson.loads(told.body)["syncStateSet"]
        fields = {
            "clusterName": "DefaultCluster",
            "brokerName": NAME,
            "brokerId": str(next(each for each in members if each != master)),
            "designateElect": "true",
        }
        answer = await ask(await self.leader(), RequestCode.CONTROLLER_ELECT_MASTER, fields)
        if answer.code != 0:
            raise RuntimeError(f"no other master: code {answer.code}, {answer.remark}")

    async def all_have(self, topic: str) -> bool:
        """Whether each broker has *topic*: slaves copy what the master has each few seconds."""
        wanted = fastjson.dumps(topic).encode()
        for address in self.brokers:
            answer = await ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, {})
            if wanted not in answer.body:
                return False
        return True

    async def _told(self, code: RequestCode, fields: dict[str, str]) -> Command | None:
        """What the first controller says that leads."""
        for address, process in self.controllers.items():
            if process.server is None:
                continue
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    answer = await ask(address, code, fields)
                if answer.code == 0 and answer.ext:
                    return answer
        return None
