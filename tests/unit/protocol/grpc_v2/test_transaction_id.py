"""Transaction ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.protocol.grpc_v2.transaction_id import TransactionId, parse_transaction_id


@given(
    st.text(st.characters(codec="ascii", exclude_characters="\n"), min_size=1, max_size=200),
    st.integers(0, 2**59),
    st.integers(0, 2**59),
)
def test_what_is_written_is_read(key: str, half_offset: int, log_offset: int) -> None:
    made = TransactionId(key, half_offset, log_offset)
    assert parse_transaction_id(str(made)) == made


@pytest.mark.parametrize("text", ["", "a", "a.1", "a.1.g", ".1.1", "a.1.", "a." + "1" * 16 + ".1"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a transaction id"):
        parse_transaction_id(text)
