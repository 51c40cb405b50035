"""Users of the brokers behind a name service that runs alone: who asks it for routes.

Each broker has users and rules of its own. It sends them to the name services that it registers
with, and again at each change (SHARE_ACCOUNTS, 70017; the body is both tables, as their files have
them):

    {"users": {name: UserInfo}, "acls": {name: [policy]}}

The name service decides by its own users first, then by those of the brokers in the order of their
names: whoever several know is who the first says. What was shared is kept in memory, also while a
broker is away, until it sends others.

Only a Super user shares, for what is shared may be Super too. Secrets travel, so a broker sends
nothing to another host without TLS.
"""

from collections.abc import Mapping, Sequence

from rockhopper.broker.kernel.tables.accounts import read_accounts
from rockhopper.broker.server.remoting.dispatcher import Request, Response
from rockhopper.broker.server.remoting.json_bodies import check_size
from rockhopper.broker.users.accounts import Rule, User
from rockhopper.broker.users.errors import InvalidParameter, NoPermission
from rockhopper.broker.users.guard import Guard
from rockhopper.protocol import fastjson

BODY_SIZE_BYTES_MAX = 16 << 20
BROKERS_MAX = 1024
Accounts = tuple[Mapping[str, User], Mapping[str, Sequence[Rule]]]


class SharedAccounts:
    """Whom a name service knows by its brokers."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._own: Accounts = ({}, {})
        self._by_broker: dict[str, Accounts] = {}

    def begin(self, users: Mapping[str, User], rules: Mapping[str, Sequence[Rule]]) -> None:
        """Begin with those of the name service itself."""
        self._own = users, rules

    def share(self, request: Request) -> Response:
        """70017: these are the users and rules of a broker from now on."""
        if not self._guard.is_super(request.principal):
            raise NoPermission("users are shared by a Super user")
        check_size(request.body, BODY_SIZE_BYTES_MAX)
        broker = request.ext.get("brokerName", "")
        if not broker or (broker not in self._by_broker and len(self._by_broker) >= BROKERS_MAX):
            raise InvalidParameter("the broker whose users these are is not named")
        try:
            self._by_broker[broker] = read_accounts(fastjson.loads(request.body))
        except ValueError as error:
            raise InvalidParameter(f"these are no users and rules: {error}") from None
        self._decide_by_all()
        return Response()

    def _decide_by_all(self) -> None:
        before = self._guard.users
        own_users, own_rules = self._own
        users, rules = dict(own_users), dict(own_rules)
        for broker in sorted(self._by_broker):
            theirs, their_rules = self._by_broker[broker]
            for name in theirs.keys() - users.keys():
                users[name] = theirs[name]
                rules[name] = their_rules.get(name, ())
        self._guard.use(users, rules)
        for name, user in before.items():
            if users.get(name) != user:
                self._guard.authenticator.user_changed(name)
