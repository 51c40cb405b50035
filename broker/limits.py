"""How many connections the file descriptors of this process allow."""

import contextlib
import sys

# Files of the store, the tables while they are written, standard streams.
DESCRIPTORS_KEPT = 192
CONNECTIONS_MAX = 100_000


def raise_open_files_limit() -> None:
    """Use all the file descriptors that this user may have.  For the whole process."""
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS names an infinite limit that it then does not take.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connection_shares(*, with_name_service: bool) -> tuple[int, int]:
    """Most connections of the broker's port and of the name service's."""
    descriptors = CONNECTIONS_MAX
    if sys.platform != "win32":
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            descriptors = min(soft, CONNECTIONS_MAX)
    available = max(descriptors - DESCRIPTORS_KEPT, descriptors // 2, 8)
    if not with_name_service:
        return available, 0
    return available * 3 // 4, available // 4
