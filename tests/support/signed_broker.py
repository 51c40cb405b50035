"""A broker without sockets that requires users, and whose clock a test sets."""

from pathlib import Path

from rockhopper.broker.users.accounts import Pattern, Rule, User, parse_actions
from rockhopper.broker.users.authentication import Authenticator
from rockhopper.broker.users.guard import Guard
from tests.support.hot_broker import HotBroker

SECRETS = {"al": "the secret of al", "bo": "the secret of bo", "root": "the secret of root"}


class SignedBroker(HotBroker):
    """Al may send to *orders*, bo may do nothing, root everything."""

    def __init__(self, root: Path, settings: dict[str, str] | None = None) -> None:
        self.guard = Guard(remote_admin=False, authenticates=True, authorizes=True)
        super().__init__(root, settings, self.guard)
        self.guard.authenticator = Authenticator({}, is_enabled=True, clock=lambda: self.now_s)
        tables = self.served.tables
        self.guard.use(tables.users.users, tables.acls.rules)
        tables.users.guard = tables.acls.guard = self.guard
        for name, secret in SECRETS.items():
            self.store_user(name, secret)
        self.set_rule("al", "orders")

    def store_user(self, name: str, secret: str, *, is_enabled: bool = True) -> None:
        """Create or change a user; no connection is closed."""
        user = User(name, secret, is_super=name == "root", is_enabled=is_enabled)
        self.served.tables.users.store_user(user)

    def delete_user(self, name: str) -> None:
        """Delete a user; no connection is closed."""
        self.served.tables.users.delete(name)

    def set_rule(self, name: str, topic: str, *sources: str, is_allowed: bool = True) -> None:
        """Set the only rule of a user, which is about sending to *topic*."""
        rule = Rule(Pattern.parse(f"Topic:{topic}"), parse_actions(["Pub"]), sources, is_allowed)
        self.served.tables.acls.replace_rules(name, [rule])

    def allow_reading(self, name: str, *groups: str) -> None:
        """Allow a user to send to *orders*, and to read it as one of *groups*; nothing else."""
        resources = ["Topic:orders", *(f"Group:{group}" for group in groups)]
        actions = parse_actions(["Pub", "Sub"])
        rules = [Rule(Pattern.parse(each), actions, (), is_allowed=True) for each in resources]
        self.served.tables.acls.replace_rules(name, rules)

    def drop_rules(self, name: str) -> None:
        """Delete the rules of a user."""
        self.served.tables.acls.replace_rules(name, ())
