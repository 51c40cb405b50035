"""Guard: the rules of a broker with users, with RocketMQ's decisions.

Without authenticationEnabled it is as open as AccessRules. With it every client must authenticate.
Administration from other hosts is then for Super users, or, with authorizationEnabled, for users
whose rules allow what the request does.
"""

import secrets
from collections.abc import Collection, Mapping, Sequence

from rockhopper.broker.users.access import CLUSTER, AccessRules, Action, Resource, ResourceKind
from rockhopper.broker.users.accounts import Rule, RuleIndex, User, decide
from rockhopper.broker.users.authentication import Authenticator
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.addresses import is_loopback
from rockhopper.protocol.names import STATE_TOPIC

VERDICTS_MAX = 1024
PRINCIPALS_MAX = 1024
NOTES = Resource(ResourceKind.TOPIC, STATE_TOPIC)
"""A replica set stores secrets in this topic, so no rule can allow access to it."""
Question = tuple[tuple[Action, ...], Resource]


class AccountListener:
    """Learns of changed users and rules, in the event loop; overrides what it needs."""

    __slots__ = ()

    def accounts_changed(self) -> None:
        """Handle any change of users or rules."""

    def user_changed(self, name: str) -> None:
        """Close everything that acts in the name of a user.

        The user was deleted or disabled, or has a new secret.
        """


class Guard(AccessRules):
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        remote_admin: bool,
        authenticates: bool = False,
        authorizes: bool = False,
        cluster_name: str = "*",
        unsigned_codes: Collection[int] = (),
        free_codes: Collection[int] = (),
        seal_secret: bytes = b"",
    ) -> None:
        """*unsigned_codes* need no user, *free_codes* no rule; cluster UPDATE needs both."""
        super().__init__(remote_admin=remote_admin)
        self.is_open = not authenticates
        self.unsigned_codes = frozenset(unsigned_codes)
        self.free_codes = frozenset(free_codes)
        self.seal_secret = seal_secret or secrets.token_bytes(32)
        """The secret by which a console of this process, or of its parent, seals a visitor's host.
        """
        self.listeners: list[AccountListener] = []
        self._authorizes = authorizes
        self._cluster = Resource(ResourceKind.CLUSTER, cluster_name)
        self._users: Mapping[str, User] = {}
        self._rules: Mapping[str, Sequence[Rule]] = {}
        self._indexes: dict[str, RuleIndex] = {}
        self._verdicts: dict[Principal, dict[Question, bool]] = {}
        self.authenticator = Authenticator({}, is_enabled=authenticates)
        self.generation = 0
        """Counts the changes of users and rules: what was decided before may be wrong."""

    def use(self, users: Mapping[str, User], rules: Mapping[str, Sequence[Rule]]) -> None:
        """Decide by these users and rules from now on; call ``rules_changed`` when they change."""
        self._users, self._rules = users, rules
        self.authenticator.users = users
        self._forget_decisions()

    def rules_changed(self) -> None:
        """Drop cached decisions, and notify the listeners."""
        self._forget_decisions()
        for listener in self.listeners:
            listener.accounts_changed()

    def _forget_decisions(self) -> None:
        self.generation += 1
        self._indexes.clear()
        self._verdicts.clear()

    def user_changed(self, name: str) -> None:
        """Notify the listeners, which close everything that acts in the name of a user."""
        for listener in self.listeners:
            listener.user_changed(name)

    @property
    def users(self) -> Mapping[str, User]:
        """The users by whom it decides."""
        return self._users

    def is_super(self, principal: Principal) -> bool:
        """Return whether *principal* is a Super user; without users there are none."""
        user = self._users.get(principal.user)
        return user is not None and user.is_enabled and user.is_super

    def may(self, principal: Principal, action: Action, resource: Resource) -> bool:
        """See AccessRules."""
        if self.is_open:
            return super().may(principal, action, resource)
        return self.may_any(principal, (action,), resource)

    def may_any(
        self, principal: Principal, actions: tuple[Action, ...], resource: Resource
    ) -> bool:
        """See AccessRules; a rule that denies one of *actions* denies all, as in RocketMQ."""
        if self.is_open:
            return super().may_any(principal, actions, resource)
        verdicts = self._verdicts.get(principal)
        if verdicts is None:
            if len(self._verdicts) >= PRINCIPALS_MAX:
                self._verdicts.clear()
            verdicts = self._verdicts[principal] = {}
        verdict = verdicts.get((actions, resource))
        if verdict is None:
            if len(verdicts) >= VERDICTS_MAX:
                verdicts.clear()
            verdict = self._decide(principal, actions, resource)
            verdicts[actions, resource] = verdict
        return verdict

    def _decide(
        self, principal: Principal, actions: tuple[Action, ...], resource: Resource
    ) -> bool:
        user = self._users.get(principal.user)
        if user is None or not user.is_enabled:
            return False
        if user.is_super:
            return True
        if resource == NOTES:
            return False
        if Action.ADMINISTER in actions:
            # The request has another need for what it does.
            return self._authorizes or self._remote_admin or is_loopback(principal.host)
        if not self._authorizes:
            return True
        rule = self.deciding(principal, actions, resource)
        return rule is not None and rule.is_allowed

    def deciding(
        self, principal: Principal, actions: Collection[Action], resource: Resource
    ) -> Rule | None:
        """Return the rule that decides for a user who is not Super; None if none applies."""
        asked = self._cluster if resource == CLUSTER else resource
        index = self._indexes.get(principal.user)
        if index is None:
            index = self._indexes[principal.user] = RuleIndex(self._rules.get(principal.user, ()))
        return decide(index.find_matching(asked), actions, asked, principal.host)


def guard_of(access: AccessRules | None) -> Guard | None:
    """Return the guard that requires users of all peers, if there is one."""
    return access if isinstance(access, Guard) and not access.is_open else None
