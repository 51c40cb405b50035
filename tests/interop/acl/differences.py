"""Where what we ask for is not what Apache's 5.5.0 asks for, and why.

Requests by their names in requests.py, with the least grants that are enough.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    """Why some requests need other rights."""

    why: str
    apache: str
    """What is enough for Apache's."""
    ours: dict[str, str]


UNANNOTATED = Difference(
    "stricter: Apache's asks for no right where the class of the header has no annotation",
    "nothing",
    {
        "reply": "Topic Pub",
        "reply by short names": "Topic Pub",
        "lite pull": "both Sub",
        "acknowledge several": "both Sub",
        "assignment": "both Sub",
        "check subscription": "both Sub",
        "create topics": "Topic Create",
        "create a static topic": "Topic Create",
        "topics": "every Topic List",
        "topics of the system": "Cluster Get",
        "create a group": "Group Create",
        "create groups": "Group Create",
        "groups": "every Group List",
        "set the request mode": "Group Update",
        "request modes": "Cluster Get",
        "change settings": "Cluster Update",
        "settings": "Cluster Get",
        "runtime figures": "Cluster Get",
        "offsets of all": "Cluster Get",
        "delayed offsets": "Cluster Get",
        "timer check point": "Cluster Get",
        "timer figures": "Cluster Get",
        "clean consume queues": "Cluster Update",
        "clean unused topics": "Cluster Update",
        "delete old files": "Cluster Update",
        "replication": "Cluster Get",
        "control cold reads": "Cluster Update",
        "control cold reads no more": "Cluster Update",
        "control of cold reads": "Cluster Get",
        "read mode": "Cluster Update",
    },
)
UNNAMED = Difference(
    "stricter: a request that names no topic is about nobody's; Apache's leaves out the question",
    "nothing",
    {"end a transaction of no topic": "", "view a message of no topic": ""},
)
OF_BROKER = (
    UNANNOTATED,
    UNNAMED,
    Difference(
        "stricter: the message that comes back is copied for the group, so its topic is read",
        "Group Sub",
        {"send back": "both Sub"},
    ),
    Difference(
        "stricter: the retry topic of another group is that group's",
        "Group Sub",
        {"pull of another's retry topic": ""},
    ),
    Difference(
        "stricter: the offsets that are copied have to be readable, too",
        "both Update",
        {"clone offsets": ""},
    ),
    Difference(
        "wider: the right to pull covers what a consumer asks around it, and shows no more",
        "Topic Get",
        dict.fromkeys(
            ("search by time", "earliest store time", "max offset", "min offset"),
            "Topic Get, Topic Sub",
        ),
    ),
)
OF_NAME_SERVICE = (
    Difference(
        "stricter: Apache's name server answers every client",
        "nobody",
        {
            "route": "Topic Get, Topic Pub, Topic Sub",
            "cluster": "Cluster Get",
            "put a value": "Cluster Update",
            "value": "Cluster Get",
            "values": "Cluster Get",
            "delete a value": "Cluster Update",
            "register a broker": "Cluster Update",
            "unregister a broker": "Cluster Update",
            "heartbeat of a broker": "Cluster Update",
            "version of a broker": "Cluster Get",
            "forbid writing": "Cluster Update",
            "permit writing": "Cluster Update",
            "members of a broker": "Cluster Get",
            "topics": "Cluster Get",
            "topics of a cluster": "every Topic List",
            "topics of the system": "Cluster Get",
            "topics of units": "Cluster Get",
            "topics with units": "Cluster Get",
            "topics with units but none": "Cluster Get",
            "register a topic": "Cluster Update",
            "delete a topic": "Cluster Update",
            "change settings": "Cluster Update",
            "settings": "Cluster Get",
        },
    ),
)
OF_GRPC = (
    Difference(
        "stricter: the message whose time is changed is of a topic, which has to be readable",
        "Group Sub",
        {"change invisible time": "both Sub"},
    ),
)


def unexplained(
    apache: dict[str, str], ours: dict[str, str], listed: tuple[Difference, ...]
) -> dict[str, tuple[str, str]]:
    """Where both differ but not as listed, and what is listed but does not differ so any more."""
    known = {
        name: (difference.apache, enough)
        for difference in listed
        for name, enough in difference.ours.items()
    }
    return {
        name: (apache[name], ours[name])
        for name in apache
        if (apache[name], ours[name]) != known.get(name, (apache[name], apache[name]))
    } | {name: known[name] for name in known.keys() - apache.keys()}
