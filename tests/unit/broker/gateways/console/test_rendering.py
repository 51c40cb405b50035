"""Rendering: what is shown stays text, and numbers are for people."""

import re
import time
from pathlib import Path

import pytest
from markupsafe import Markup

from rockhopper.broker.gateways.console import rendering
from rockhopper.broker.gateways.console.rendering import (
    ago,
    count,
    duration,
    format_time,
    link,
    rate,
    size,
    visible,
)
from rockhopper.client.admin.unreachable_brokers import UnreachableBroker
from rockhopper.client.network.addresses import BrokerAddress


def test_what_cannot_be_seen_is_shown() -> None:
    hostile = "a\u202eb\x1b[31m\u200b\x00\ud800\u2066\ufeff\x85"
    found = visible(hostile)
    assert found == ("a⟨U+202E⟩b⟨U+001B⟩[31m⟨U+200B⟩⟨U+0000⟩⟨U+D800⟩⟨U+2066⟩⟨U+FEFF⟩⟨U+0085⟩")
    assert visible("tab\tline\n ž 漢 👩‍👩") is not None
    assert visible("tab\tline\nž漢") == "tab\tline\nž漢"
    assert visible(Markup("<b>")) == "<b>"
    assert visible(7) == 7


def test_templates_escape_and_name_nothing_that_is_not_there() -> None:
    environment = rendering.environment()
    made = environment.from_string('<a title="{{ x }}">{{ x }}</a>').render(x='"><script>\u202e')
    assert made == (
        '<a title="&#34;&gt;&lt;script&gt;⟨U+202E⟩">&#34;&gt;&lt;script&gt;⟨U+202E⟩</a>'
    )
    with pytest.raises(Exception, match="undefined"):
        environment.from_string("{{ missing }}").render()


def test_no_template_has_scripts_or_styles_of_its_own() -> None:
    for name in rendering.environment().list_templates():
        source = (Path(rendering.__file__).parent / "templates" / name).read_text()
        assert not re.search(r"\son\w+=|style=|<style|javascript:|\|\s*safe|autoescape", source)
        assert "http://" not in source.replace("http://www.w3.org/2000/svg", ""), name
        assert "https://" not in source, name


def test_links_carry_what_they_are_given() -> None:
    assert link("") == "./"
    assert link("topic", name="%RETRY%a&b=c", page=None, x="") == (
        "topic?name=%25RETRY%25a%26b%3Dc"
    )
    assert link("message", offset=0) == "message?offset=0"
    assert rendering.relink({"a": "1", "b": "2"}, "t", b=None, c=3) == "t?a=1&c=3"


def test_numbers_have_units() -> None:
    assert [count(1234567), count(None)] == ["1,234,567", "–"]
    assert [rate(0.0), rate(0.25), rate(1234.5), rate(None)] == ["0", "0.2", "1,234", "–"]
    sizes = [size(each) for each in (0, 1023, 1536, 5 << 40)]
    assert sizes == ["0 B", "1,023 B", "1.5 KiB", "5.0 TiB"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.2 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3_660, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (-5, "-5.0 s"),
        (None, "–"),
    ],
)
def test_durations_are_in_two_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_times_are_dates_and_how_long_ago() -> None:
    now_ms = time.time_ns() // 1_000_000
    assert re.search(r">\d{4}-\d\d-\d\d \d\d:\d\d:\d\d</time>", str(format_time(now_ms)))
    assert [format_time(0), format_time(None), format_time(-1), ago(None)] == ["–", "–", "–", "–"]
    assert format_time(1_795_899_578_414_000) == "1795899578414000 ms"
    assert ago(now_ms - 7_200_000).startswith("2 h")
    assert ago(now_ms + 7_300_000).startswith("in 2 h")


def test_files_have_types_and_a_mark() -> None:
    files = rendering.static_files()
    assert set(files) == {"console.css", "console.js"}
    assert files["console.css"][1] == "text/css; charset=utf-8"
    assert b"prefers-color-scheme: dark" in files["console.css"][0]
    assert re.fullmatch(r"[0-9a-f]{12}", rendering.static_mark())
    assert b"://" not in files["console.css"][0] + files["console.js"][0]


def test_long_lists_have_a_last_page_and_a_way_to_any() -> None:
    pager = rendering.environment().get_template("parts.html").module.pager  # type: ignore[attr-defined]
    made = str(pager(7, 200, {"search": "a&b", "page": "7"}, "topics"))
    for page in (1, 6, 8, 200):
        assert f'topics?search=a%26b&amp;page={page}"' in made
    assert '<input type="hidden" name="search" value="a&amp;b">' in made
    assert 'max="200"' in made
    assert "<form" not in str(pager(1, 2, {}, "topics"))


def test_nothing_is_missing_by_a_replica_that_does_not_answer() -> None:
    missing = rendering.environment().get_template("parts.html").module.missing  # type: ignore[attr-defined]
    master, replica = (
        str(
            missing(
                [
                    UnreachableBroker(
                        BrokerAddress("C", "broker-a", number, "127.0.0.1:1"), "refused"
                    )
                ]
            )
        )
        for number in (0, 2)
    )
    assert "Broker broker-a is not included" in master
    assert 'role="alert"' in master
    assert "Replica 2 of broker-a does not answer; the page is complete without it" in replica
    assert "alert" not in replica
