"""How the file descriptors of this process are divided."""

import contextlib
import sys

from rockhopper.broker.store.files.descriptors import open_files_max
from rockhopper.broker.store.files.mapped_file import HOLDS_DESCRIPTOR, MAPPED_FILES_MAX

# For index, journals, files open for a moment, standard streams.
DESCRIPTORS_KEPT = 192
CONNECTIONS_MAX = 100_000
# The share of mapped files, one in four: with fewer the store only gets slower.
_MAPPED_FILES_PART = 4


def raise_open_files_limit() -> None:
    """Use all the file descriptors that this user may open, in the whole process."""
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS reports an infinite limit, but then rejects it.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def compute_mapped_files_max() -> int:
    """Return the maximum number of mapped files of log and queues."""
    if not HOLDS_DESCRIPTOR:
        return MAPPED_FILES_MAX
    return min(_available() // _MAPPED_FILES_PART, MAPPED_FILES_MAX)


def connection_shares(
    *, with_store: bool, with_name_service: bool, ports: int = 1
) -> tuple[int, int]:
    """Return the limits of connections: of each of the *ports*, and of the name server."""
    mapped_files = compute_mapped_files_max() if with_store and HOLDS_DESCRIPTOR else 0
    available = _available() - mapped_files
    available = min(available, CONNECTIONS_MAX)
    if not with_name_service:
        return available // ports, 0
    return available * 3 // 4 // ports, available // 4


def _available() -> int:
    descriptors = open_files_max()
    if descriptors is None:
        descriptors = CONNECTIONS_MAX + MAPPED_FILES_MAX + DESCRIPTORS_KEPT
    return max(descriptors - DESCRIPTORS_KEPT, descriptors // 2, 8)
