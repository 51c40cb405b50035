"""Free-form properties that a client reports about itself, for operators."""

import re
from collections.abc import Mapping

from rockhopper.broker.gateways.grpc.statuses import GrpcStatusError
from rockhopper.protocol.grpc_v2.codes import Code

PAIRS_MAX = 32
VALUE_LENGTH_MAX = 256
SIZE_BYTES_MAX = 4096
_is_name = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}").fullmatch
_RESERVED = "rocketmq."


def check_client_properties(pairs: Mapping[str, str]) -> None:
    """Raise GrpcStatusError if a client's properties are invalid."""
    problem = None
    size_bytes = sum(len(name.encode()) + len(value.encode()) for name, value in pairs.items())
    if len(pairs) > PAIRS_MAX or size_bytes > SIZE_BYTES_MAX:
        problem = f"{len(pairs)} pairs of {size_bytes} bytes"
    for name, value in pairs.items():
        if not _is_name(name) or name.lower().startswith(_RESERVED):
            problem = f"the name {name[:100]!r}"
        elif len(value) > VALUE_LENGTH_MAX:
            problem = f"the value of {name} with {len(value)} characters"
    if problem is not None:
        raise GrpcStatusError(
            Code.INVALID_CLIENT_PROPERTIES, f"client properties cannot be {problem}"
        )
