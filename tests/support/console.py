"""A client for the console of a broker that behaves like a browser."""

import asyncio
import base64
import html
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode, urljoin

USERS = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": '{"username":"root","password":"the secret"}',
}
_BASE = re.compile(rb'<base href="([^"]*)">')
_LINK = re.compile(rb'((?:href|src|action|data-from)=")(?!/|[a-z]+:)([^"]*)"')
_TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)


def _with_whole_links(content: bytes, path: str) -> bytes:
    """Return a page with its links resolved to paths, as a browser does."""
    base = _BASE.search(content)
    if base is None:
        return content
    root = urljoin(path, base[1].decode())
    return _LINK.sub(
        lambda found: found[1] + urljoin(root, found[2].decode()).encode() + b'"', content
    )


class Answered(NamedTuple):
    """An answer of the operator's port."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def source(self) -> str:
        """The body as received."""
        return self.body.decode()

    @property
    def text(self) -> str:
        """The text of the page that a user reads."""
        return " ".join(html.unescape(_TAGS.sub(" ", self.source)).split())


class Browser:
    """A client of one operator's port; it sends the name and secret of *user* if given."""

    def __init__(self, address: str, user: tuple[str, str] | None = None) -> None:
        self.address = address
        self.headers: dict[str, str] = {"Host": address}
        self.first = ""
        """The headers of every request."""
        if user is not None:
            said = base64.b64encode(":".join(user).encode()).decode()
            self.headers["Authorization"] = f"Basic {said}"

    async def ask(
        self,
        method: str,
        path: str,
        body: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answered:
        """Send one request; *headers* override the usual ones."""
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = {**self.headers, **(headers or {})}
        if method == "POST" and "Content-Length" not in lines:
            lines["Content-Length"] = str(len(body.encode()))
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"{self.first}{method} {path} HTTP/1.1\r\n{head}\r\n{body}".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        head_bytes, _, content = answer.partition(b"\r\n\r\n")
        first, *named = head_bytes.decode().split("\r\n")
        pairs = [line.partition(": ") for line in named]
        said_of = {key: value for key, _, value in pairs}
        if "Location" in said_of:
            said_of["Location"] = urljoin(path, said_of["Location"])
        return Answered(int(first.split()[1]), said_of, _with_whole_links(content, path))

    async def get(self, page: str = "", /, **query: object) -> Answered:
        """Return a page of the console."""
        return await self.ask("GET", f"/console/{page}?{urlencode(query)}")

    async def token(self) -> str:
        """Return the token that forms must contain."""
        found = re.search(r'name="token" value="([0-9a-f]+)"', (await self.get("send")).source)
        assert found is not None
        return found[1]

    async def post(self, page: str, /, **form: object) -> Answered:
        """Send a form, with its token unless *form* has one."""
        fields = {"token": await self.token(), **form} if "token" not in form else form
        return await self.ask("POST", f"/console/{page}", urlencode(fields))

    async def follow(self, moved: Answered) -> Answered:
        """Return the page that an answer redirects to."""
        assert moved.status == 303, moved.text
        return await self.ask("GET", moved.headers["Location"])
