"""The stub of the synchronous clients is what `make pages` makes of them."""

import pytest

pytest.importorskip("griffe", reason="the stub is made with the extra [docs]")

from docs.site import sync_stub
from docs.site.help_files import ROOT


@pytest.mark.costly
def test_the_stub_is_up_to_date() -> None:
    text = (ROOT / sync_stub.FILE).read_text(encoding="utf-8")
    assert text == sync_stub.make_stub(), "run `make pages`"
