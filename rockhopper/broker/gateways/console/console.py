"""Console: the application at /console/ on the operator's port, and its access control.

    Host header    names this machine (hosts.py), or 421
    user           HTTP Basic if users exist; otherwise as on the port's other pages
    forms          from the console's own pages (forms.py), by a user who may administer

Everything that renders pages (the template library, the Rockhopper client) is imported for the
first page. The client sends requests to the name server and the brokers like any other, with the
user's credentials. It also tells brokers of this process and its children the user's host
(gate.py), so that they decide what the user may do.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rockhopper.broker.gateways.console.forms import Tokens, fields, from_elsewhere, is_from_here
from rockhopper.broker.gateways.console.hosts import FOLDER, HOME, is_ours, names_of
from rockhopper.broker.server.remoting.http import (
    HTML,
    Application,
    HttpRequest,
    Page,
    basic_credentials,
    identify_caller,
    unknown_name,
)
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.users.access import CLUSTER, AccessRules, Action

if TYPE_CHECKING:
    from rockhopper.broker.gateways.console.site import Site
    from rockhopper.broker.gateways.console.visit import Visit

HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'self'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
STALE = (
    "Nothing was done: since this page was loaded the broker has restarted, or you have signed in "
    "as another user. Check the page, and try again."
)
NOT_KEPT = ("Cache-Control", "no-store")
_SIGN_IN = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Sign in</title>
<h1>Sign in</h1>
<p>These pages are for users of the broker. Nobody is signed in, or no user of this name has this
secret: it may have been changed since. A form that was sent was not taken.</p>
<p><a href="">Sign in</a> with the name of a user and his secret. The browser keeps them
until it is closed, which is how to sign out.</p>
"""


async def _to_console(_request: HttpRequest) -> Page:
    return Page(b"", 303, headers=(("Location", f"{FOLDER}/"),))


class Console:
    """The console of one operator's port. Belongs to the event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        access: AccessRules,
        name_services: Callable[[], str],
        certificate: Callable[[], Path | None],
    ) -> None:
        """*name_services* returns the current addresses, host:port separated by ``;``.

        *certificate* returns this process's TLS certificate.
        """
        self._config = config
        self._access = access
        self._names = names_of(config)
        self._proxied_names = frozenset(name.lower() for name in config.console_hosts)
        self._name_services = name_services
        self._certificate = certificate
        self._tokens = Tokens()
        self._site: Site | None = None
        self._loading = asyncio.Lock()

    def applications(self) -> Mapping[str, Application]:
        """Return the applications for the port; none with consoleEnable=false."""
        return {"": _to_console, FOLDER: self} if self._config.console_enable else {}

    def knows_name(self, host_line: str) -> bool:
        """Return whether a Host header names this machine and no rebound name."""
        return is_ours(host_line, self._names)

    async def close(self) -> None:
        """Close the clients."""
        if self._site is not None:
            await self._site.close()

    async def __call__(self, request: HttpRequest) -> Page:
        """Answer *request*."""
        page = await self._answer(request)
        kept = any(name == NOT_KEPT[0] for name, _ in page.headers)
        headers = (*page.headers, *HEADERS) if kept else (*page.headers, *HEADERS, NOT_KEPT)
        return page._replace(headers=headers)

    async def _answer(self, request: HttpRequest) -> Page:
        named = request.headers.get("host", "")
        if not self.knows_name(named):
            return unknown_name(named)
        if request.method not in ("GET", "HEAD", "POST"):
            return Page(b"only GET, HEAD and POST are served\n", 405)
        principal = identify_caller(self._access, request)
        if isinstance(principal, Page):
            return Page(_SIGN_IN, principal.status, HTML)
        if not self._access.is_open and not self._access.may(principal, Action.GET, CLUSTER):
            return Page(f"{principal.user} is not allowed to Get Cluster:*\n".encode(), 403)
        may_change = self._access.may(principal, Action.ADMINISTER, CLUSTER)
        try:
            query = fields(request.query)
            form = fields(request.body.decode("utf-8", "replace"))
        except ValueError:
            return Page(b"these are more fields than a form has\n", 400)
        site = await self._load()
        visit = site.visit(principal, basic_credentials(request), query, may_change=may_change)
        visit.path = request.path.removeprefix(HOME)
        if request.method != "POST":
            return await site.show(request.path, visit)
        return await self._submit(site, request, visit, form)

    async def _submit(
        self, site: "Site", request: HttpRequest, visit: "Visit", form: dict[str, str]
    ) -> Page:
        if not is_from_here(request.headers, self._proxied_names):
            return await site.refuse(visit, from_elsewhere(request.headers), 403)
        if not visit.may_change:
            return await site.refuse(visit, visit.why_not, 403)
        if not self._tokens.is_right(form.get("token", ""), visit.principal.user):
            return await site.show_again(request.path, visit, form, STALE)
        return await site.submit(request.path, visit, form)

    async def _load(self) -> "Site":
        async with self._loading:
            if self._site is None:
                # The imports take 100 ms; in a thread, the loop can run between them.
                make = await asyncio.to_thread(_site_class)
                self._site = make(
                    self._config,
                    self._access,
                    self._name_services,
                    self._tokens,
                    self._certificate(),
                )
        return self._site


def _site_class() -> "type[Site]":
    from rockhopper.broker.gateways.console.site import Site

    return Site
