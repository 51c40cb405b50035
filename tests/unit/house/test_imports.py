"""What the fast path imports."""

from pathlib import Path

from tests.house import imports
from tests.support.small_house import house


def test_the_closure_has_lazy_imports_and_those_for_types_and_follows_them(tmp_path: Path) -> None:
    tree = house(
        tmp_path,
        broker__hot__pass_="def f():\n    from rockhopper.broker.store.log import Log\n",
        broker__store__log="if TYPE_CHECKING:\n    from rockhopper.protocol import frame\n",
        protocol__frame="import os\n",
        protocol__other="",
    )
    assert imports.closure_of_fast_path(tree) == [
        "broker/hot/pass_.py",
        "broker/store/log.py",
        "protocol/frame.py",
    ]
