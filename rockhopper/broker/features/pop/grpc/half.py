"""PopGrpc: pop consumption for RocketMQ 5 clients, while a gateway is open."""

from collections.abc import Mapping

from rockhopper.broker.feature import RpcRow
from rockhopper.broker.features.pop.grpc.handles import Handles
from rockhopper.broker.features.pop.grpc.receiving import PopReceiving
from rockhopper.broker.features.pop.grpc.settling import Settling
from rockhopper.broker.features.pop.processors.checks import PopChecks
from rockhopper.broker.features.pop.service import PopService
from rockhopper.broker.gateways.grpc import permissions
from rockhopper.broker.gateways.grpc.sessions import Sessions
from rockhopper.broker.kernel.kernel import Kernel


class PopGrpc:
    """The RPCs, and the handles of the messages that clients hold."""

    def __init__(
        self, kernel: Kernel, pop: PopService, checks: PopChecks, sessions: Sessions
    ) -> None:
        name, now_ms = kernel.config.broker_name, kernel.clock.steady_ms
        self.handles = Handles(pop, name, now_ms)
        receiving = PopReceiving(
            name, pop, kernel.tables.groups, checks, sessions, self.handles, now_ms
        )
        self._settling = settling = Settling(kernel.store, self.handles, kernel.send_back)
        self.rpcs: Mapping[str, RpcRow] = {
            "ReceiveMessage": RpcRow(receiving.receive, permissions.of_queue, promises_state=False),
            "AckMessage": RpcRow(settling.ack, permissions.of_consuming, is_gathered=True),
            "ChangeInvisibleDuration": RpcRow(settling.change, permissions.of_consuming),
            "ForwardMessageToDeadLetterQueue": RpcRow(settling.forward, permissions.of_consuming),
        }

    def settle(self) -> None:
        """Acknowledge the messages of all calls of a turn."""
        self._settling.settle_acks()

    def close(self) -> None:
        """Renew no more handles."""
        self.handles.stop()
