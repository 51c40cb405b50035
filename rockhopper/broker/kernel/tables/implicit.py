"""Implicit topics and groups: they exist without being created, and no table stores them."""

from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Implicit(Protocol[T_co]):
    """Topics or groups that a feature serves by their names."""

    def owns(self, name: str) -> bool:
        """Return whether the name is implicit, so that the table must not store it."""

    def find(self, name: str) -> T_co | None:
        """Return the settings of what has this name; None if nothing can have it."""
