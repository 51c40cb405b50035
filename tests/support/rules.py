"""Permissions as a test lays them down."""

from rockhopper.broker.users.access import Access, Action, Resource
from rockhopper.broker.users.peer import Principal


class Rules(Access):
    """Allows what it is told to, to everybody, and notes what it was asked."""

    is_open = False

    def __init__(self, *allowed: tuple[Action, Resource]) -> None:
        super().__init__(remote_admin=False)
        self.allowed = set(allowed)
        self.asked: list[tuple[Principal, Action, Resource]] = []

    def may(self, principal: Principal, action: Action, resource: Resource) -> bool:
        """Whether it was told so."""
        self.asked.append((principal, action, resource))
        return (action, resource) in self.allowed
