"""Users with one right each: together they show which right a request needs."""

from collections.abc import Mapping

from rockhopper.protocol.signing import Credentials
from tests.interop.acl.asking import ALLOWED, ROOT, SECRET, Caller, Entry, calling
from tests.interop.acl.requests import DEAD_LETTERS, GROUP, TOPIC, Act

ACTIONS = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
_RESOURCES = (f"Topic:{TOPIC}", f"Group:{GROUP}", "Cluster:DefaultCluster")

GRANTS: dict[str, tuple[Entry, ...]] = {
    "nothing": (),
    **{
        f"{resource.partition(':')[0]} {action}": (Entry(resource, action),)
        for resource in _RESOURCES
        for action in ACTIONS
    },
    **{
        f"both {action}": tuple(Entry(each, action) for each in _RESOURCES[:2])
        for action in ACTIONS
    },
    "dead letters Pub": (Entry(f"Topic:{DEAD_LETTERS}", "Pub"),),
    "dead letters and group Sub": (
        Entry(f"Topic:{DEAD_LETTERS}", "Sub"),
        Entry(f"Group:{GROUP}", "Sub"),
    ),
    "every Topic List": (Entry("Topic:*", "List"),),
    "every Group List": (Entry("Group:*", "List"),),
}
"""What each user may do, by his rights."""
NOBODY, SUPER = "nobody", "super"


def user_name(grant: str) -> str:
    """Who has it."""
    return grant.replace(" ", "-")


async def make_users(broker: Caller) -> None:
    """Make one for each grant."""
    for grant, entries in GRANTS.items():
        await broker.add_user(user_name(grant), entries)


async def sufficient(address: str, acts: Mapping[str, Act]) -> dict[str, str]:
    """The least grants with which each request is allowed, beside the Super user's."""
    users = {grant: Credentials(user_name(grant), SECRET) for grant in GRANTS}
    found: dict[str, set[str]] = {name: set() for name in acts}
    async with calling(address) as caller:
        for grant, user in {NOBODY: None, **users, SUPER: ROOT}.items():
            verdicts = await caller.verdicts(acts, user)
            for name, verdict in verdicts.items():
                if verdict == ALLOWED:
                    found[name].add(grant)
    return {name: least(grants) for name, grants in found.items()}


def least(grants: set[str]) -> str:
    """Without those who have more rights than one of the others needs; a text."""
    for everybody in (NOBODY, "nothing"):
        if everybody in grants:
            return everybody
    parts = {grant: grant.removeprefix("both ") for grant in grants if grant.startswith("both ")}
    more = {"dead letters and group Sub"} if "Group Sub" in grants else set()
    more |= {
        grant for grant, action in parts.items() if grants & {f"Topic {action}", f"Group {action}"}
    }
    assert SUPER in grants
    return ", ".join(sorted(grants - more - {SUPER}))
