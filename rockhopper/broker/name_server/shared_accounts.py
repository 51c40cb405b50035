"""Users of the brokers behind a standalone name server: they may request routes.

Each broker has its own users and rules. It sends them to the name servers with which it registers,
and again after each change (SHARE_ACCOUNTS, 70017). The body contains both tables in the format of
their files:

    {"users": {name: UserInfo}, "acls": {name: [policy]}}

The name server's own users take precedence, then those of the brokers in order of their names: the
first definition of a name counts. Shared accounts stay in memory, even while their broker is away,
until it sends others.

Only a Super user may share accounts, because these may include Super users. The accounts contain
secrets, so a broker sends them to another host only over TLS.
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
    """The accounts that a name server knows, by broker."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._own: Accounts = ({}, {})
        self._by_broker: dict[str, Accounts] = {}

    def set_own_accounts(
        self, users: Mapping[str, User], rules: Mapping[str, Sequence[Rule]]
    ) -> None:
        """Set the accounts of the name server itself."""
        self._own = users, rules

    def share(self, request: Request) -> Response:
        """70017: replace the users and rules of a broker."""
        if not self._guard.is_super(request.principal):
            raise NoPermission("only a Super user can share users")
        check_size(request.body, BODY_SIZE_BYTES_MAX)
        broker = request.ext.get("brokerName", "")
        if not broker or (broker not in self._by_broker and len(self._by_broker) >= BROKERS_MAX):
            raise InvalidParameter("the request does not name the broker of these users")
        try:
            self._by_broker[broker] = read_accounts(fastjson.loads(request.body))
        except ValueError as error:
            raise InvalidParameter(f"invalid users or rules: {error}") from None
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
                self._guard.user_changed(name)
