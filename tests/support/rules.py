"""Permissions that a test sets."""

from rockhopper.broker.users.access import AccessRules, Action, Resource
from rockhopper.broker.users.peer import Principal


class Rules(AccessRules):
    """Allows the configured actions to everyone, and records the checks."""

    is_open = False

    def __init__(self, *allowed: tuple[Action, Resource]) -> None:
        super().__init__(remote_admin=False)
        self.allowed = set(allowed)
        self.asked: list[tuple[Principal, Action, Resource]] = []

    def may(self, principal: Principal, action: Action, resource: Resource) -> bool:
        """Return whether it is configured as allowed."""
        self.asked.append((principal, action, resource))
        return (action, resource) in self.allowed
