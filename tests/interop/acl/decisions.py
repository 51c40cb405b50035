"""Users with rules that contend, and what each asks from where: how a decision is made.

Sources are addresses of this host. Who cannot prove who he is has one for each request, for a
server may stop listening to an address that fails too often.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rockhopper.protocol.signing import Credentials
from tests.interop.acl import requests
from tests.interop.acl.asking import ROOT, SECRET, Caller, Entry, calling
from tests.interop.acl.requests import Act

HERE, THERE = "127.0.0.1", "127.0.0.2"
_CONSUME = Entry("Group:billing", "Sub")

USERS: dict[str, tuple[Entry, ...]] = {
    "without-a-rule": (),
    "literal": (Entry("Topic:orders", "Pub,Sub"), _CONSUME),
    "all-actions": (Entry("Topic:orders", "All"), Entry("Group:billing", "All")),
    "prefix": (Entry("Topic:ord*", "Pub,Sub"), Entry("Group:bil*", "Sub")),
    "every-topic": (Entry("Topic:*", "Pub,Sub"), _CONSUME),
    "everything": (Entry("*", "All"),),
    "every-group": (Entry("Group:*", "Sub"), Entry("Topic:orders", "Sub")),
    "literal-denies": (Entry("Topic:*", "All"), Entry("Topic:orders", "Pub", "Deny")),
    "literal-allows": (Entry("Topic:ord*", "Pub", "Deny"), Entry("Topic:orders", "Pub")),
    "longer-denies": (Entry("Topic:o*", "Pub"), Entry("Topic:order*", "Pub", "Deny")),
    "longer-allows": (Entry("Topic:o*", "Pub", "Deny"), Entry("Topic:order*", "Pub")),
    "prefix-over-every": (Entry("Topic:*", "Pub", "Deny"), Entry("Topic:o*", "Pub")),
    "every-topic-over-all": (Entry("*", "Pub", "Deny"), Entry("Topic:*", "Pub")),
    "all-denied": (Entry("*", "All", "Deny"), Entry("Topic:orders", "Pub")),
    "denied-in-another-action": (Entry("Topic:*", "Pub"), Entry("Topic:orders", "Sub", "Deny")),
    "denied-one-of-two": (Entry("Topic:*", "Sub"), Entry("Topic:orders", "Get", "Deny")),
    "default-alone": (Entry("Topic:orders", "Pub", policy="Default"),),
    "custom-over-default": (
        Entry("Topic:orders", "Pub", "Deny", policy="Default"),
        Entry("Topic:*", "Pub"),
    ),
    "custom-denies": (
        Entry("Topic:orders", "Pub", policy="Default"),
        Entry("*", "Pub", "Deny"),
    ),
    "default-where-custom-says-nothing": (
        Entry("Topic:*", "Pub", policy="Default"),
        Entry("Topic:orders", "Sub", "Deny"),
    ),
    "at-an-address": (Entry("Topic:orders", "Pub", source_ips=(HERE,)),),
    "in-a-network": (Entry("Topic:orders", "Pub", source_ips=("127.0.0.0/31",)),),
    "in-networks": (Entry("Topic:orders", "Pub", source_ips=("10.0.0.0/8", "127.0.0.2/32")),),
    "elsewhere": (Entry("Topic:orders", "Pub", source_ips=("10.1.2.3", "192.168.0.0/16")),),
    "denied-at-an-address": (
        Entry("Topic:*", "Pub"),
        Entry("Topic:orders", "Pub", "Deny", source_ips=(THERE,)),
    ),
    "custom-elsewhere": (
        Entry("Topic:orders", "Pub", "Deny", source_ips=(THERE,)),
        Entry("Topic:orders", "Pub", policy="Default"),
    ),
    "case": (Entry("Topic:Orders", "Pub"),),
    "another-kind": (Entry("Group:orders", "All"), Entry("Cluster:*", "All")),
    "replaced": (Entry("Topic:orders", "Pub"), Entry("Topic:orders", "Pub", "Deny")),
    "equal-in-two-policies": (
        Entry("Topic:orders", "Pub", "Deny"),
        Entry("Topic:orders", "Pub", policy="Default"),
    ),
}
"""Normal users who are enabled, and the rules that they are given, in this order."""
STRANGERS = {
    "disabled": Credentials("disabled", SECRET),
    "unknown": Credentials("unknown", SECRET),
    "of-another-secret": Credentials("literal", "another secret"),
    "nobody": None,
}
ACTS: dict[str, Act] = {
    "send": requests.send(),
    "send elsewhere": requests.send("oranges"),
    "send quite elsewhere": requests.send("bills"),
    "send to the retry topic": requests.send("%RETRY%billing"),
    "pull": requests.pull(),
    "pull elsewhere": requests.pull("oranges"),
    "pull for others": requests.pull(group="auditing"),
    "query by key": requests.of_broker()["query by key"],
    "create a topic": requests.create_topic(),
    "create a topic elsewhere": requests.create_topic("oranges"),
    "settings of the cluster": requests.of_broker()["stats"],
}


class Cell(NamedTuple):
    """Who asks from where, and what."""

    user: str
    source: str
    act: str


async def make_users(broker: Caller) -> None:
    """Make all but the unknown one."""
    for name, entries in USERS.items():
        await broker.add_user(name, entries)
    allow, deny = Entry("Topic:orders", "Pub"), Entry("Topic:orders", "Pub,Sub", "Deny")
    for name, entries in {"allow-first": (allow, deny), "deny-first": (deny, allow)}.items():
        await broker.add_user(name)
        await broker.add_rules(name, *entries)
    await broker.add_user("disabled", [Entry("*", "All")], userStatus="disable")
    await broker.add_user("super", userType="Super")


async def decided(address: str, own_address: str) -> dict[Cell, str]:
    """What a broker decides in each cell."""
    known = {
        name: Credentials(name, SECRET) for name in (*USERS, "allow-first", "deny-first", "super")
    } | {"root": ROOT}
    found: dict[Cell, str] = {}
    for source in (HERE, THERE, own_address):
        async with calling(address, source) as caller:
            for name, user in known.items():
                verdicts = await caller.verdicts(ACTS, user)
                found |= {Cell(name, source, act): verdict for act, verdict in verdicts.items()}
    for source, (name, act) in zip(_sources(), _strange(), strict=False):
        async with calling(address, source) as caller:
            found[Cell(name, "", act)] = await caller.verdict(ACTS[act], STRANGERS[name])
    return found


def _strange() -> Iterator[tuple[str, str]]:
    return ((name, act) for name in STRANGERS for act in ACTS)


def _sources() -> Iterator[str]:
    return (f"127.0.1.{last}" for last in range(1, 255))
