"""The saved help is what click prints."""

import pytest

from docs.site import help_files


@pytest.mark.parametrize("program", help_files.COMMANDS)
def test_a_file_is_up_to_date(program: str) -> None:
    file = help_files.ROOT / help_files.COMMANDS[program][1]
    assert file.read_text(encoding="utf-8") == help_files.format_help(program), "run `make pages`"
