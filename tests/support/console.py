"""The console of a broker, asked as a browser would."""

import asyncio
import base64
import html
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

USERS = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": '{"username":"root","password":"the secret"}',
}
_TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)


class Answered(NamedTuple):
    """An answer of the operator's port."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def source(self) -> str:
        """The body as it came."""
        return self.body.decode()

    @property
    def text(self) -> str:
        """What somebody reads of the page."""
        return " ".join(html.unescape(_TAGS.sub(" ", self.source)).split())


class Browser:
    """Asks one operator's port; *user* and his secret go along where they are given."""

    def __init__(self, address: str, user: tuple[str, str] | None = None) -> None:
        self.address = address
        self.headers: dict[str, str] = {"Host": address}
        self.first = ""
        """What goes in front of every request."""
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
        """Send one request; *headers* come over the usual ones."""
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
        return Answered(int(first.split()[1]), {key: value for key, _, value in pairs}, content)

    async def get(self, page: str = "", /, **query: object) -> Answered:
        """A page of the console."""
        return await self.ask("GET", f"/console/{page}?{urlencode(query)}")

    async def token(self) -> str:
        """What forms carry."""
        found = re.search(r'name="token" value="([0-9a-f]+)"', (await self.get("send")).source)
        assert found is not None
        return found[1]

    async def post(self, page: str, /, **form: object) -> Answered:
        """Send a form, with its token unless *form* has one."""
        fields = {"token": await self.token(), **form} if "token" not in form else form
        return await self.ask("POST", f"/console/{page}", urlencode(fields))

    async def follow(self, moved: Answered) -> Answered:
        """The page that an answer sends to."""
        assert moved.status == 303, moved.text
        return await self.ask("GET", moved.headers["Location"])
