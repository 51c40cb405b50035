"""Walking over the log: C when compiled, else the Python functions of ``walking``."""

from collections.abc import Callable

from rockhopper.protocol.compiled import import_compiled
from rockhopper.protocol.store import walking

_walking = import_compiled("rockhopper.protocol.store._walking")

walk_plain: Callable[..., walking.Found] = (_walking or walking).walk_plain
whole_end: Callable[..., int] = (_walking or walking).whole_end
