"""The console's pages, with the objects that tests/browser creates."""

PAGES = (
    "",
    "brokers",
    "topics?system=1",
    "topic?name=orders",
    "messages?topic=orders",
    "message?topic=orders&queue=broker-a:0&offset=1",
    "message?topic=orders&queue=broker-a:0&offset=1&as=hex",
    "send?topic=orders",
    "groups?system=1",
    "group?name=billing",
    "group/reset?group=billing&topic=orders&to=earliest",
    "dead-letters",
    "dead-letters/of?group=postmen&all=1",
    "dead-letters/back?group=postmen&count=9",
    "later",
    "settings?edit=brokerPermission",
    "nothing",
)
