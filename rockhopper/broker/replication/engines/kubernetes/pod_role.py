"""The label ``rockhopper/role`` of this pod, by which a Service routes clients to the master.

Safety does not depend on it: a broker that does not lead refuses requests.
"""

import asyncio

import structlog

from rockhopper.broker.replication.engines.engine import EngineError
from rockhopper.broker.replication.engines.kubernetes.api import KubernetesApi
from rockhopper.tasks import end_task, keep_running

LABEL = "rockhopper/role"
MASTER, SLAVE = "master", "slave"
RETRY_S = 1.0

log = structlog.get_logger("broker.ha")


class PodRole:
    """Sets the role label of one pod. Belongs to one event loop."""

    def __init__(self, api: KubernetesApi, namespace: str, pod: str, *, retry_s: float = RETRY_S):
        """*pod* is the name of the pod in which this broker runs."""
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        self._retry_s = retry_s
        self._task: asyncio.Task[None] | None = None

    def tell(self, *, is_master: bool) -> None:
        """Start to set the label; this replaces an earlier attempt that has not succeeded yet."""
        if self._task:
            end_task(self._task)
        role = MASTER if is_master else SLAVE
        self._task = keep_running(lambda: self._set(role), "the label of the pod")

    async def wait_until_set(self) -> None:
        """Return once the label is set."""
        if self._task:
            await self._task

    async def close(self) -> None:
        """Cancel the pending attempt and close the connection."""
        if self._task:
            end_task(self._task)
            await asyncio.gather(self._task, return_exceptions=True)
        await self._api.close()

    async def _set(self, role: str) -> None:
        body = {"metadata": {"labels": {LABEL: role}}}
        while True:
            try:
                await self._api.ask("PATCH", self._path, body, is_patch=True)
                return
            except EngineError as error:
                log.warning("the pod's label could not be set", label=LABEL, reason=str(error))
            await asyncio.sleep(self._retry_s)
