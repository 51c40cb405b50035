"""Access to the Kubernetes API server from a pod, with its service account.

The token is read for each request, because the kubelet replaces it from time to time. A request is
sent once. If its outcome is unknown, nothing here repeats it.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rockhopper.broker.replication.engines.consensus.connection import (
    HttpStatusError,
    ServiceRequest,
)
from rockhopper.broker.replication.engines.consensus.connections import (
    ServiceConnections,
    ServiceRefusedError,
    Tls,
    UnavailableError,
)
from rockhopper.broker.replication.engines.engine import EngineError
from rockhopper.protocol.addresses import join_address

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_FILE = _SERVICE_ACCOUNT / "token"
CA_FILE = _SERVICE_ACCOUNT / "ca.crt"
HTTPS_PORT = 443
TOO_MANY_REQUESTS = 429
_HINTS = {
    401: "is the service account's token mounted into the pod?",
    403: "grant it by a Role as in docker/kubernetes/replica-set.yaml",
}


class StatusOfRefusal(msgspec.Struct):
    """The body of an error answer, and of the error in a failed watch."""

    message: str = ""
    code: int = 0


class NotDoneError(ServiceRefusedError):
    """A request was refused.

    A concurrent change won (409), or the object does not exist (404, 410).
    """

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class KubernetesAccess:
    """The address of the API server and the path of the token."""

    endpoint: str
    token_file: Path
    tls: Tls = None


def endpoint_in_pod(environment: Mapping[str, str]) -> str:
    """Return the address of a pod's API server. Raises EngineError outside of a pod."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    if not host:
        raise EngineError(
            "haEngine=kubernetes://… works only in a pod, and KUBERNETES_SERVICE_HOST is not "
            "set: run the broker in Kubernetes, or use etcd"
        )
    return join_address(host, int(environment.get("KUBERNETES_SERVICE_PORT", HTTPS_PORT)))


class KubernetesApi:
    """Access to one API server from one event loop."""

    def __init__(
        self, access: KubernetesAccess, *, timeout_ms: int = 1000, silence_ms: int = 20_000
    ) -> None:
        """Connections explains *timeout_ms* and *silence_ms*."""
        self.endpoint = access.endpoint
        self._token_file = access.token_file
        self._connections = ServiceConnections(
            default_port=HTTPS_PORT,
            tls=access.tls,
            timeout_ms=timeout_ms,
            silence_ms=silence_ms,
        )

    async def ask(
        self, method: str, path: str, body: object = None, *, is_patch: bool = False
    ) -> bytes:
        """Send a request and return the body of its answer.

        Raises:
            NotDoneError: refused with 404, 409 or 410.
            ServiceRefusedError: refused otherwise.
            UnavailableError: there is no usable answer; ``may_be_done`` is set if the server may
            have executed the request.
        """
        request = self._request(method, path, body, is_patch=is_patch)
        try:
            return await self._connections.ask(self.endpoint, request)
        except HttpStatusError as error:
            raise self._build_refusal(error) from None

    async def watch(self, path: str) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch until it ends or is silent; raises as ``ask``."""
        request = self._request("GET", path, None)
        try:
            async with aclosing(self._connections.stream(self.endpoint, request)) as lines:
                async for line in lines:
                    yield line
        except HttpStatusError as error:
            raise self._build_refusal(error) from None

    def unreadable(self, error: Exception) -> UnavailableError:
        """Return the error for an answer that cannot be decoded."""
        return self._connections.build_failure(self.endpoint, error)

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        await self._connections.close()

    def _request(
        self, method: str, path: str, body: object, *, is_patch: bool = False
    ) -> ServiceRequest:
        kind = "application/merge-patch+json" if is_patch else "application/json"
        data = b"" if body is None else msgspec.json.encode(body)
        return ServiceRequest(method, path, data, f"Bearer {self._token()}", kind)

    def _token(self) -> str:
        try:
            return self._token_file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ServiceRefusedError(
                f"the token of the service account cannot be read ({error}): is it mounted into "
                "the pod (automountServiceAccountToken)?"
            ) from None

    def _build_refusal(self, error: HttpStatusError) -> EngineError:
        try:
            message = msgspec.json.decode(error.body, type=StatusOfRefusal).message
        except msgspec.MsgspecError:
            message = error.body[:200].decode(errors="replace")
        reason = f"{self.endpoint} refuses: {message or f'HTTP {error.status}'}"
        if error.status >= 500 or error.status == TOO_MANY_REQUESTS:
            return UnavailableError(reason, may_be_done=error.status >= 500)
        if error.status in (404, 409, 410):
            return NotDoneError(reason, error.status)
        hint = _HINTS.get(error.status)
        return ServiceRefusedError(f"{reason}: {hint}" if hint else reason)
