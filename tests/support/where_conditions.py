"""Conditions for ``search --where``: some need no Spark, some do."""

from pathlib import Path
from typing import Any

from tests.support.written_logs import WrittenLog

UNDERSTOOD = (
    "tags = 'red'",
    "tags <> 'red' OR tags IS NULL",
    "NOT (tags = 'red' AND keys = 'k1')",
    "NOT tags IN ('red', 'Ä') AND queueOffset > 2",
    "queueOffset BETWEEN 3 AND 7 OR queueId = 1 AND flag = -5",
    "keys LIKE 'k_%' AND keys NOT LIKE '%2'",
    "tags LIKE '_' OR keys LIKE '%.%'",
    "properties['region'] >= 'eu' AND NOT properties['region'] = 'us'",
    "properties['amount'] IS NULL",
    "topic > 'topic-0' AND tags <= 'red'",
    "queueOffset = queueId OR 4 < queueOffset",
    "tags = keys",
    "msgId IS NOT NULL AND bornHost = storeHost",
    'TAGS == "red" and `queueId` != 0',
    "tags = '' OR queueId IS NULL OR reconsumeTimes = 0",
    "physOffset > 999999999999999999 OR sysFlag < 1",
)

LEFT_TO_SPARK = (
    "size(properties) > 5",
    "queueId = '1'",
    "tags = 1",
    "queueId = 1.5",
    "queueId = 1L",
    "queueId + 1 = 2",
    "queueId -1 = 2",
    "tags = 'it''s'",
    "tags = 'a\\'b'",
    "tags LIKE 'a\\_b'",
    "tags = NULL",
    "tags IN (NULL)",
    "tags <=> 'a'",
    "tags RLIKE 'a'",
    "tags IN ()",
    "tags = 'a",
    "storeTimestamp > '2026-01-01'",
    "body = 'x'",
    "properties.region = 'eu'",
    "properties['a']['b'] = 'eu'",
    "date = '2026-01-01'",
    "tags",
    "true",
    "1 = 1",
    "(tags) = 'a'",
    "tags = 'a' AND",
    "tags = 'a')",
    "tags = 'a' 'b'",
    "tags = '${x}'",
    "tags = 'a' -- more",
    "NOT " * 60 + "tags = 'a'",
    "(" * 60 + "tags = 'a'" + ")" * 60,
    "",
)


def log_of_odd_messages(root: Path) -> WrittenLog:
    """Return messages with and without tags and keys, properties and characters beyond ASCII."""
    log = WrittenLog(root)
    texts: list[Any] = [None, "red", "Ä", "k1", "k2.", "re", "\U0001f600", "a\nb", "rede"]
    regions: list[Any] = [None, "eu", "us", "é", "z"]
    for number in range(90):
        given = {
            "TAGS": texts[number % 9],
            "KEYS": texts[number * 5 % 7],
            "region": regions[number % 5],
            "amount": str(number) if number % 2 else None,
        }
        properties = {name: value for name, value in given.items() if value is not None}
        flag = -5 if number % 4 else 3
        log.add(properties=properties, flag=flag, queue_id=number % 3, queue_offset=number % 10)
    return log
