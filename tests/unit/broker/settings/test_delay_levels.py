"""DelayLevels: how long a level is, and where a delayed message waits."""

from rockhopper.broker.settings.delay_levels import DelayLevels


def test_default_levels_are_rocketmqs() -> None:
    levels = DelayLevels()
    assert levels.level_max == 18
    assert [levels.delay_ms(level) // 1000 for level in (1, 2, 3, 4, 5, 14, 15, 16, 17, 18)] == [
        1,
        5,
        10,
        30,
        60,
        600,
        1200,
        1800,
        3600,
        7200,
    ]


def test_levels_beyond_the_last_are_the_last() -> None:
    assert DelayLevels("1s 2d").delay_ms(99_999) == 2 * 86_400_000


def test_redirected_message_remembers_where_it_is_for() -> None:
    properties = {"REAL_TOPIC": "forged", "a": "b"}
    assert DelayLevels().redirect("orders", 3, properties, 99) == ("SCHEDULE_TOPIC_XXXX", 17)
    assert properties == {"REAL_TOPIC": "orders", "REAL_QID": "3", "DELAY": "18", "a": "b"}
