"""The style that our pages share."""

import re

from rockhopper.page_style import CSS


def test_every_colour_has_one_for_dark_screens() -> None:
    parts = CSS.split("@media (prefers-color-scheme: dark)")
    light, dark = (set(re.findall(r"(--\w+):", part)) for part in parts[:2])
    assert light
    assert light == dark


def test_it_names_nothing_elsewhere() -> None:
    assert "url(" not in CSS
    assert "@import" not in CSS
