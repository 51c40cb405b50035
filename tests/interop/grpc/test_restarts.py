"""Clients that are connected go on after the broker was killed and started again."""

import pytest

from tests.interop.grpc.conftest import Programs
from tests.interop.grpc.programs import ANSWER_TIMEOUT_S, CLIENTS
from tests.interop.grpc.servers import Endpoint

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


def test_connected_clients_go_on_after_a_kill(endpoint: Endpoint, programs: Programs) -> None:
    for op, body in (("hold", "before"), ("resume", "after")):
        begun = {client: programs.begin(client, op, "hold") for client in CLIENTS}
        for client, future in begun.items():
            if future is not None:
                messages = future.result(ANSWER_TIMEOUT_S)
                assert body in [message["body"] for message in messages], client
        if op == "hold":
            endpoint.kill()
            endpoint.start()
