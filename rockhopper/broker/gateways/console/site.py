"""Site: the pages by path, the execution of their views, and error pages."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from rockhopper.broker.gateways.console import elsewhere
from rockhopper.broker.gateways.console.cache import ResultCache
from rockhopper.broker.gateways.console.clients import UserClients, tls_of
from rockhopper.broker.gateways.console.forms import Tokens
from rockhopper.broker.gateways.console.hosts import FOLDER, HOME
from rockhopper.broker.gateways.console.rendering import (
    encode_json,
    link,
    render,
    root_of,
    static_files,
)
from rockhopper.broker.gateways.console.views import (
    dead_letters,
    groups,
    messages,
    overview,
    scheduled,
    sending,
    settings,
    topics,
)
from rockhopper.broker.gateways.console.visit import (
    JsonDocument,
    Moved,
    Raw,
    Result,
    TemplatePage,
    Turns,
    Visit,
    WrongInput,
    format_error,
    is_forbidden,
)
from rockhopper.broker.server.remoting.http import HTML, Page
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.users.access import AccessRules
from rockhopper.broker.users.errors import NoPermission
from rockhopper.broker.users.guard import Guard
from rockhopper.broker.users.peer import Principal
from rockhopper.client.admin.unreachable_brokers import UnreachableBrokers
from rockhopper.client.errors import (
    BrokerUnreachableError,
    ClientError,
    MessageNotFoundError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from rockhopper.protocol.signing import Credentials, VisitorCredentials

log = structlog.get_logger("broker.console")

STATIC = "static/"
LIVE = ("rates.json",)
"""Paths that open pages poll, even while no broker runs."""
TOLD = ("topic", "group", "key", "value", "broker", "to", "id", "count")
"""The form fields that are logged."""
VIEWS_AT_ONCE_MAX = 8
"""Further requests wait, so that many readers do not slow down the broker's clients."""

View = Callable[[Visit], Awaitable[Result]]
Act = Callable[[Visit, Mapping[str, str]], Awaitable[Result]]

PAGES: Mapping[str, View] = {
    "": overview.show,
    "rates.json": overview.rates,
    "brokers": overview.brokers,
    "topics": topics.show_all,
    "topic": topics.show,
    "messages": messages.browse,
    "message": messages.show,
    "message/body": messages.save,
    "send": sending.show,
    "groups": groups.show_all,
    "group": groups.show,
    "group/reset": groups.preview_reset,
    "dead-letters": dead_letters.show_all,
    "dead-letters/of": dead_letters.show,
    "dead-letters/back": dead_letters.preview,
    "later": scheduled.show,
    "settings": settings.show,
}
ACTS: Mapping[str, Act] = {
    "send": sending.send,
    "group/reset": groups.reset,
    "dead-letters/of": dead_letters.requeue,
    "settings": settings.change,
}
FORMS: Mapping[str, str] = {
    "send": "send",
    "group/reset": "group/reset",
    "dead-letters/of": "dead-letters/back",
    "settings": "settings",
}
"""The page that contains each form; its query pre-fills the form."""


class Site:
    """Runs the console's views. Belongs to the event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        access: AccessRules,
        name_services: Callable[[], str],
        tokens: Tokens,
        certificate: Path | None = None,
    ) -> None:
        self._config = config
        self._access = access
        self._name_services = name_services
        self._tokens = tokens
        self._tls = tls_of(config.tls, certificate)
        self.clients = UserClients(self._tls)
        self._kept = ResultCache()
        self._unreachable = UnreachableBrokers()
        self._turns = Turns()
        self._slots = asyncio.Semaphore(VIEWS_AT_ONCE_MAX)

    async def close(self) -> None:
        """Close the clients."""
        await self.clients.close()

    def visit(
        self,
        principal: Principal,
        credentials: tuple[str, str] | None,
        query: dict[str, str],
        *,
        may_change: bool,
    ) -> Visit:
        """Return the context of a request for its view."""
        notice, seal = query.pop("notice", ""), query.pop("seal", "")
        is_ours = self._tokens.is_right(seal, principal.user, f"notice {notice}")
        return Visit(
            access=self._access,
            principal=principal,
            credentials=self._credentials(principal, credentials),
            query=query,
            may_change=may_change,
            name_services=self._name_services(),
            kept=self._kept,
            turns=self._turns,
            tls=self._tls,
            notice=notice if is_ours else "",
        )

    def _credentials(
        self, principal: Principal, given: tuple[str, str] | None
    ) -> Credentials | None:
        """Return a user's credentials, which also tell Rockhopper brokers the user's host."""
        if not isinstance(self._access, Guard) or not principal.user or given is None:
            return None
        return VisitorCredentials(*given, principal.host, self._access.seal_secret)

    async def show(self, path: str, visit: Visit) -> Page:
        """Return the page at *path*."""
        if path + "/" == HOME:
            return Page(b"", 303, headers=(("Location", link(f"{FOLDER}/")),))
        visit.path = path.removeprefix(HOME)
        if visit.path.startswith(STATIC):
            return _static(visit.path.removeprefix(STATIC))
        view = PAGES.get(visit.path)
        if view is None:
            return await self.refuse(visit, "This page does not exist.", 404)
        return await self._run(visit, lambda: self._view(visit, view))

    async def submit(self, path: str, visit: Visit, form: Mapping[str, str]) -> Page:
        """Execute a form."""
        visit.path = path.removeprefix(HOME)
        act = ACTS.get(visit.path)
        if act is None:
            return await self.refuse(visit, "This form does not exist.", 404)
        page = await self._run(visit, lambda: self._perform(visit, act, form))
        if page.status == 303:
            told = {key: form[key][:200] for key in TOLD if form.get(key)}
            user, host = visit.principal.user or "nobody", visit.principal.host
            log.info("console action done", form=visit.path, by=user, host=host, **told)
        return page

    async def show_again(
        self, path: str, visit: Visit, form: Mapping[str, str], sentence: str
    ) -> Page:
        """Return the page of a form that was not executed, with the user's input and *sentence*."""
        page = FORMS.get(path.removeprefix(HOME))
        if page is None:
            return await self.refuse(visit, sentence, 403)
        visit.query = {name: value for name, value in form.items() if name != "token"}
        visit.notice = sentence
        return (await self.show(HOME + page, visit))._replace(status=403)

    async def refuse(self, visit: Visit, sentence: str, status: int) -> Page:
        """Return a page that contains only a sentence."""
        return await self._render(
            visit, TemplatePage("sentence.html", {"sentence": sentence}, status)
        )

    async def _explain_closed(self, visit: Visit) -> str:
        """Return why an open broker takes no changes from this host; empty if it does."""
        if not (visit.may_change and visit.access.is_open):
            return ""
        return await elsewhere.explain_refusal(visit.admin, visit.principal.host, self._kept)

    async def _run(self, visit: Visit, view: Callable[[], Awaitable[Result]]) -> Page:
        if not visit.name_services:
            sentence = "This broker has no name server: set namesrvAddr, or role=all."
            return await self.refuse(visit, sentence, 503)
        try:
            async with (
                self._slots,
                self.clients.use(visit.name_services, visit.credentials) as admin,
            ):
                visit.admin = admin
                (visit.silent, there), visit.departed = await asyncio.gather(
                    self._unreachable.leave_out(admin), admin.departed_brokers()
                )
                if not (there or visit.silent or visit.path in LIVE):
                    await admin.masters()  # Raises the error for a missing master.
                visit.closed = await self._explain_closed(visit)
                return await self._page(visit, await view())
        except (MessageNotFoundError, RouteNotFoundError) as error:
            if visit.silent and not there:
                return await self.refuse(visit, "No broker answers.", 502)
            return await self.refuse(visit, str(error), 404)
        except (WrongInput, NoPermission, ClientError, TimeoutError) as error:
            return await self.refuse(visit, *_sentence_and_status(error))

    async def _perform(self, visit: Visit, act: Act, form: Mapping[str, str]) -> Result:
        if visit.closed:
            raise NoPermission(visit.closed)
        return await act(visit, form)

    async def _view(self, visit: Visit, view: View) -> Result:
        """Run a view; if a broker has stopped answering since, run it again without that broker."""
        try:
            return await view(visit)
        except (BrokerUnreachableError, RequestTimeoutError) as error:
            if isinstance(error, RequestTimeoutError):
                self._unreachable.note(error)
            visit.silent, _ = await self._unreachable.leave_out(visit.admin)
            if not any(error.address == each.broker.address for each in visit.silent):
                raise
            return await view(visit)

    async def _page(self, visit: Visit, result: Result) -> Page:
        match result:
            case TemplatePage():
                return await self._render(visit, result)
            case JsonDocument(document):
                return Page(encode_json(document), content_type="application/json")
            case Raw(body, name):
                saved = ("Content-Disposition", f'attachment; filename="{name}"')
                return Page(body, content_type="application/octet-stream", headers=(saved,))
            case Moved(path, query, notice):
                seal = self._tokens.make(visit.principal.user, f"notice {notice}")
                said = {"notice": notice, "seal": seal} if notice else {}
                return Page(
                    b"",
                    303,
                    headers=(("Location", root_of(visit.path) + link(path, **query, **said)),),
                )

    async def _render(self, visit: Visit, shown: TemplatePage) -> Page:
        values: dict[str, Any] = {
            "visit": visit,
            "root": root_of(visit.path),
            "query": visit.query,
            "token": self._tokens.make(visit.principal.user),
            "cluster": self._config.cluster_name,
            **shown.values,
        }
        body = await asyncio.to_thread(render, shown.template, values)
        return Page(body, shown.status, HTML)


def _static(name: str) -> Page:
    found = static_files().get(name)
    if found is None:
        return Page(b"there is no such file\n", 404)
    # The address contains a hash of the files.
    return Page(found[0], content_type=found[1], headers=(("Cache-Control", "max-age=86400"),))


def _sentence_and_status(error: Exception) -> tuple[str, int]:
    if isinstance(error, WrongInput):
        return str(error), 400
    if isinstance(error, NoPermission):
        return str(error), 403
    if isinstance(error, ClientError):
        return format_error(error), 403 if is_forbidden(error) else 502
    return "A broker did not answer in time.", 504
