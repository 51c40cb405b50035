from collections.abc import Set

def read_send(
    request: bytes, host: str, body_size_max: int, system_names: Set[str], /
) -> tuple[str, str, bytes, str, int] | None: ...
def encode_received(
    record: bytes,
    topic: str,
    namespace: str,
    digest: str,
    handle: str,
    invisible_ms: int,
    attempts: int,
    system_names: Set[str],
    /,
) -> bytes | None: ...
def encode_sent(status: bytes, message_id: str, offset: int, /) -> bytes: ...
