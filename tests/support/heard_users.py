"""A listener of a guard that records whose connections it should close."""

from rockhopper.broker.users.guard import AccountListener


class HeardUsers(AccountListener):
    """Records changed users."""

    def __init__(self) -> None:
        self.users: list[str] = []

    def user_changed(self, name: str) -> None:
        """Record the name."""
        self.users.append(name)
