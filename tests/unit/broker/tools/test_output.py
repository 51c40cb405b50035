import pytest

from rockhopper.broker.tools import output


def test_sizes_and_counts_for_people() -> None:
    assert output.size_text(1023) == "1023 bytes"
    assert output.size_text(1024) == "1.0 KiB"
    assert output.size_text(3 << 29) == "1.5 GiB"
    assert output.size_text(3 << 50) == "3072.0 TiB"
    assert output.format_count(1, "index entry") == "1 index entry"
    assert output.format_count(2000, "index entry") == "2,000 index entries"
    assert output.time_text(None) == "-"
    assert output.time_text(1_795_166_323_715).endswith(".715")


def test_numbers_stand_to_the_right(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output.write_table(("N", "NAME"), [(5, "a"), ("1,000", "b\x1b")])
    output.flush()
    assert capsysbinary.readouterr().out == b"    N  NAME\n    5  a\n1,000  b\\x1b\n"
