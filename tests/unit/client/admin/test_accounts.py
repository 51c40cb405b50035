"""Users and rules through Admin."""

from rockhopper.broker.app import Broker
from rockhopper.client import Admin


async def test_each_master_is_told_and_asked(broker: Broker) -> None:
    async with Admin(broker.nameserver) as admin:
        accounts = admin.accounts
        (master,) = await accounts.add_user("alice", "the secret of alice")
        assert master.name == "broker-a"
        await accounts.add_user("alicia", "the secret of alicia", broker="broker-a")
        for name in ("alice", "alicia"):
            await accounts.add_rule(name, "Topic:t", ["Pub"], is_allowed=True)
        assert [info["subject"] for _, info in await accounts.rules("alice")] == ["User:alice"]
        assert len(await accounts.rules()) == 2
        ((name, decision),) = await accounts.decision("alice", "Sub", "Topic:t", "127.0.0.1")
        # Without authorizationEnabled rules decide nothing.
        assert (name, decision["isAllowed"]) == ("broker-a", True)
        await accounts.remove_rules("alice", "Topic:t")
        await accounts.remove_user("alicia")
        assert [info["username"] for _, info in await accounts.users()] == ["alice"]
        assert await accounts.rules() == []
