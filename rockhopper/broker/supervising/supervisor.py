"""Supervisor: one process that runs several brokers of one cluster, one for each core.

    supervisor   name server, operator's port, lock on storePathRootDir
      broker-a-0   listenPort         storePathRootDir/broker-a-0
      broker-a-1   listenPort + 20    storePathRootDir/broker-a-1 …

The brokers are independent: they register with the name server like any brokers of one cluster, and
clients spread over them. The step of 20 leaves room for the ports next to each listenPort (VIP,
replication).
"""

import asyncio
import dataclasses
import json
from collections.abc import Sequence

from rockhopper.broker.gateways.console.console import Console
from rockhopper.broker.kernel.members.guarding import SEAL_VARIABLE, guard_of
from rockhopper.broker.name_server.alone import NameServer
from rockhopper.broker.server.remoting.http import HttpServer
from rockhopper.broker.server.remoting.ports import Ports
from rockhopper.broker.server.remoting.startup import StartError, store_errors_explained
from rockhopper.broker.settings.advertise import choose_fixed_host
from rockhopper.broker.settings.auth_config import SECRET_KEYS
from rockhopper.broker.settings.broker_config import BrokerConfig, Role
from rockhopper.broker.settings.config_file import ENVIRONMENT_PREFIX
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.disk import make_directories
from rockhopper.broker.store.files.lock_file import StoreLock
from rockhopper.broker.store.files.store_directories import check_many, directory_of, name_of
from rockhopper.broker.supervising.broker_process import BrokerProcess, command_of
from rockhopper.broker.supervising.pages import pages_of

PORTS_APART = 20


class Supervisor:
    """The parent of several brokers; it holds shared resources and serves the combined pages."""

    def __init__(self, config: BrokerConfig, count: int, arguments: Sequence[str]) -> None:
        """*arguments* are the arguments of this process; each broker receives them too."""
        self.config = config
        self.failed = asyncio.Event()
        """Never set: a failed broker is restarted."""
        self._arguments = list(arguments)
        self._count = count
        self._ports = Ports(config.bind_address)
        self._lock: StoreLock | None = None
        self._name_server: NameServer | None = None
        if config.role is Role.ALL:
            self._name_server = NameServer(
                dataclasses.replace(config, role=Role.NAMESERVER, http_port=-1)
            )
        self._brokers: list[BrokerProcess] = []
        guard = guard_of(config) if self._name_server is None else self._name_server.guard
        self._seal = {SEAL_VARIABLE: guard.seal_secret.hex()}
        self._console = Console(config, guard, self._name_services_known, self._ports.certificate)
        self._http = HttpServer(
            pages_of(lambda: self._brokers, config.cluster_name),
            guard,
            self._console.applications(),
            self._console.knows_name,
        )

    @property
    def brokers(self) -> Sequence[BrokerProcess]:
        """The brokers in the order of their ports; empty before ``start``."""
        return self._brokers

    def facts(self) -> dict[str, str]:
        """Return the facts for the first log lines."""
        served = [broker.facts["broker"] for broker in self._brokers if broker.is_serving]
        return {
            "brokers": " ".join(served) or str(self._count),
            "nameserver": self._name_service_address() or "none",
            "http": self._ports.address("httpPort") or "none",
            **self._ports.listening(),
            "store": str(self.config.store.root),
        }

    def outcome(self) -> dict[str, int]:
        """Return nothing: this process has no store."""
        return {}

    def prepare(self) -> None:
        """Bind the ports, and check and lock the store's directory. Raises StartError."""
        config = self.config
        with store_errors_explained(config.store.root):
            check_many(config.store, config.broker_name, self._count)
            layout = StoreLayout.from_config(config.store)
            make_directories(layout.root)
            if self._lock is None:
                self._lock = StoreLock(layout.root, layout.lock, layout.abort)
        self._ports.bind("httpPort", config.http_port)
        if self._name_server is not None:
            self._name_server.prepare()

    async def start(self) -> None:
        """Return when all brokers are registered. If StartError is raised, nothing runs."""
        try:
            self.prepare()
            self._open_gate()
            if self._name_server is not None:
                await self._name_server.start()
            await self._ports.listen("httpPort", self._http.start_on)
            self._brokers = [self._broker(number) for number in range(self._count)]
            async with asyncio.TaskGroup() as starts:
                for broker in self._brokers:
                    starts.create_task(broker.start())
        except* (StartError, OSError) as group:
            await self._stop()
            raise _first_of(group) from None

    def _open_gate(self) -> None:
        config = self.config
        host = choose_fixed_host(config.bind_address, config.broker_ip1)
        self._ports.open_gate(config.tls, StoreLayout.from_config(config.store), [host])

    def _tls_arguments(self) -> list[str]:
        """Return arguments with the certificate that this process has created, for its brokers."""
        tls = self._ports.gate.tls
        if tls is None or self.config.tls.certificate is not None:
            return []
        return [f"--set=tlsCertPath={tls.files.certificate}", f"--set=tlsKeyPath={tls.files.key}"]

    async def announce(self) -> None:
        """Do nothing: each broker has already registered."""

    async def stop(self) -> None:
        """Stop all brokers, then the name server. Raises OSError if not all data was saved."""
        failed = await self._stop()
        if failed:
            raise OSError(", ".join(failed))

    def hurry(self) -> None:
        """Do nothing: ``stop`` waits for no clients."""

    async def _stop(self) -> list[str]:
        codes = await asyncio.gather(*(broker.stop() for broker in self._brokers))
        names = [broker.name for broker in self._brokers]
        self._brokers = []
        try:
            await self._http.close()
            await self._console.close()
            if self._name_server is not None:
                await self._name_server.stop()
        finally:
            self._ports.close_gate()
            self._ports.close()
            if self._lock is not None:
                self._lock.release()
                self._lock = None
        return [
            f"{name}: exit code {code}" for name, code in zip(names, codes, strict=True) if code
        ]

    def _broker(self, number: int) -> BrokerProcess:
        config = self.config
        port = config.listen_port and config.listen_port + PORTS_APART * number
        name_services = self._name_services_known()
        # All brokers share the memory that a single broker would have.
        ratio_max = -(-config.store.in_memory_ratio_max // self._count)
        name = name_of(config.broker_name, number)
        directory = directory_of(config.store.root, config.broker_name, number)
        arguments = [
            *self._arguments,
            *self._tls_arguments(),
            *("--brokers=1", f"--set=accessMessageInMemoryMaxRatio={ratio_max}"),
            *(f"--role={Role.BROKER.value}", f"--name={name}", f"--store={directory}"),
            *(f"--listen-port={port}", f"--namesrv-addr={name_services}"),
        ]
        if config.grpc_port > 0:
            arguments.append(f"--set=grpcPort={config.grpc_port + PORTS_APART * number}")
        return BrokerProcess(
            name,
            command_of(arguments),
            with_http=config.http_port >= 0,
            environment=self._seal | self._inner_user(),
        )

    def _inner_user(self) -> dict[str, str]:
        """Return the user with which brokers register here, if the settings name none.

        It is passed in the environment, because all users of the machine can read command lines.
        """
        auth = self.config.auth
        if not auth.authentication_enabled or auth.inner is not None or self._name_server is None:
            return {}
        inner = self._name_server.inner_user()
        document = {"accessKey": inner.access_key, "secretKey": inner.secret}
        return {f"{ENVIRONMENT_PREFIX}{SECRET_KEYS[1].upper()}": json.dumps(document)}

    def _name_services_known(self) -> str:
        return ";".join(filter(None, (self._name_service_address(), *self.config.namesrv_addr)))

    def _name_service_address(self) -> str:
        return self._name_server.address if self._name_server is not None else ""


def _first_of(group: BaseExceptionGroup[Exception]) -> StartError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, StartError):
        return error
    return StartError(
        f"a broker cannot be started ({error}): check for free memory and process limits"
    )
