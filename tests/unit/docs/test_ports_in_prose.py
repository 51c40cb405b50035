"""Each port that a page names is the one that the words around it mean."""

import re
from collections.abc import Iterator

import pytest

from rockhopper.broker.settings.config_file import load_config
from tests.support.prose import ROOT, Page, pages

PLAIN = load_config().config
IMAGE = load_config(ROOT / "docker/broker.conf").config
PORTS = {
    "listenPort": PLAIN.listen_port,
    "namesrvPort": PLAIN.namesrv_port,
    "httpPort": PLAIN.http_port,
    # Off by itself; the image has it on.
    "grpcPort": IMAGE.grpc_port,
    "haListenPort": PLAIN.listen_port + 1,
    "vipChannelEnabled": PLAIN.listen_port - 2,
}
_PORT = r"(?<![\d.,#])(?P<port>\d{4,5})(?![\d.]*\d)"
_HOST = r"(?:[\w.…-]+:)?"
_NAMES = r"(?:-n|--nameserver|NAMESRV\w*|\w*NAMESERVER|name[sS]erver|nameSrv|\w*[nN]amesrvAddr)"
# What stands before (or after) a port, and whose port that is.
MEANT = [
    (rf"https?://(?:127\.0\.0\.1|localhost|broker):{_PORT}", "httpPort"),
    (rf"targets: \[\"broker:{_PORT}", "httpPort"),
    (rf"{_NAMES}\b\W{{1,6}}[\w.]+:{_PORT}", "namesrvPort"),
    (rf"NAMESRV_ADDR`[^:]{{1,60}}?[\d.]+:{_PORT}", "namesrvPort"),
    (rf"\b(?:Admin|App|Connections|Producer|Consumer)\(\"[\w.]+:{_PORT}", "namesrvPort"),
    (rf"(?<!\d )[Nn]ame ser(?:vice|ver)(?: on|,| \(|:)? ?{_HOST}{_PORT}", "namesrvPort"),
    (rf"[Nn]ame ser(?:vice|ver) \| [^|]*?{_PORT}", "namesrvPort"),
    (rf"(?:\s-b|--broker|\b(?:OLD|NEW|OURS)=|[Mm]essages on) ?{_HOST}{_PORT}", "listenPort"),
    (rf"\b(?:broker|remoting)(?:,| on)? {_HOST}{_PORT}", "listenPort"),
    (rf"\bremoting, \d+ and {_PORT}", "namesrvPort"),
    (rf"brokers \| [^|]*?apart: {_PORT}", "listenPort"),
    (rf"a rule `[\w./]+=[\w.]+:{_PORT}", "listenPort"),
    (rf"Publish {_PORT} as another port", "listenPort"),
    (rf"two ports below listenPort \({_PORT}", "vipChannelEnabled"),
    (rf"{_PORT} messages\b", "listenPort"),
    (rf"{_PORT} name ser(?:vice|ver)", "namesrvPort"),
    (rf"{_PORT} health\b", "httpPort"),
    (rf"{_PORT} clients of RocketMQ 5", "grpcPort"),
    (rf"(?:RocketMQ 5 clients,|it on: port) {_PORT}", "grpcPort"),
    (rf"the port; {_PORT} by convention", "grpcPort"),
    (rf"(?:console|metrics|health)\S* (?:\| one port,|on|at) {_PORT}", "httpPort"),
    (rf"no plain request is answered at {_PORT}", "httpPort"),
]
# Other programs, a second broker that the page starts itself, and what is only an example.
OF_OTHERS = [
    rf"(?:registry=\"|schema registry's address \(`)http://\w+:{_PORT}",
    rf"gateway=127\.0\.0\.1:{_PORT},subnet=self",
    rf"\bcurl (?:-X POST )?localhost:{_PORT}/order",
    rf"\b(?:Grafana|Prometheus): http://127\.0\.0\.1:{_PORT}",
    r"--(?:nameserver 127\.0\.0\.1:|namesrv-port )(?P<port>19876)\b",
    rf"--set listenPort={_PORT}`, or an option",
    rf"@\d+#\d+ 127\.0\.0\.1:{_PORT} PYTHON",
]
_SETTING = (
    re.compile(rf"`(?P<key>\w+Port)`(?:\s\||,)? ?[(`=]*{_PORT}"),
    re.compile(rf"\b(?P<key>\w+Port)={_PORT}"),
    re.compile(rf"\({_PORT}, `(?P<key>\w+Port)`"),
)
_PUBLISHED = re.compile(rf"-p (?:127\.0\.0\.1:)?(?P<outer>\d+):{_PORT}")
_LISTED = re.compile(r"(?<![\w.])(?:[\w.]+:\d{4,5};)+[\w.]+:\d{4,5}")
_GRPC = re.compile(rf"\b(?:host|localhost|[abc]):{_PORT}")
_NAMED = re.compile(
    rf"(?<![\d.,#])(?:{'|'.join(map(str, PORTS.values()))})(?!\d)"
    rf"|(?:127\.0\.0\.1|localhost):(?P<port>\d+)"
)


def meant(page: Page) -> Iterator[tuple[int, str, int, str]]:
    """Where, the words, the port and whose it has to be, for each port that words explain."""
    text = " ".join(page.text.split())
    for pattern, key in MEANT:
        for found in re.finditer(pattern, text):
            yield found.start("port"), found[0], int(found["port"]), key
    for setting in _SETTING:
        for found in setting.finditer(text):
            if found["key"] in PORTS:
                yield found.start("port"), found[0], int(found["port"]), found["key"]
    is_grpc = page.name == "docs/grpc.md"
    for found in _LISTED.finditer(text):
        for port in re.finditer(r":(\d+)", found[0]):
            key = "grpcPort" if is_grpc else "namesrvPort"
            yield found.start() + port.start(1), found[0], int(port[1]), key
    if is_grpc:
        for found in _GRPC.finditer(text):
            yield found.start("port"), found[0], int(found["port"]), "grpcPort"


def faults(page: Page) -> list[str]:
    """Ports that are another's, and those that no words explain."""
    text = " ".join(page.text.split())
    explained = {
        found.start("port") for pattern in OF_OTHERS for found in re.finditer(pattern, text)
    }
    wrong = []
    for at, words, port, key in meant(page):
        if at not in explained and port != PORTS[key]:
            wrong.append(f"{page.name}: {key} is {PORTS[key]}: {words}")
    explained |= {at for at, *_ in meant(page)}
    for found in _PUBLISHED.finditer(text):
        explained.update({found.start("port"), found.start("outer")})
        inner, outer = int(found["port"]), int(found["outer"])
        # Another port of the host ends alike: 20911.
        if inner not in PORTS.values() or outer % 1000 != inner % 1000:
            wrong.append(f"{page.name}: published as another: {found[0]}")
    for found in _NAMED.finditer(text):
        at = found.start("port") if found["port"] else found.start()
        if at not in explained:
            words = text[max(0, at - 50) : found.end() + 20]
            wrong.append(f"{page.name}: whose port is it? Say it in MEANT: {words}")
    return wrong


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_each_port_is_the_one_that_is_meant(page: Page) -> None:
    assert faults(page) == []


@pytest.mark.parametrize(
    "text",
    [
        "Three ports: messages on 127.0.0.1:10912.",
        "The name server on 127.0.0.1:9877.",
        "else `NAMESRV_ADDR`, else 127.0.0.1:10911.",
        "Ask `http://127.0.0.1:9465/readyz` for it.",
        "`listenPort` (10909) takes them.",
        "`haListenPort` (10913) is for replicas.",
        "the HTTP port (9876, `httpPort`)",
        "| ports | 10911 messages, 9464 name server |",
        "rockhopper topic list -n localhost:10911",
        "docker run -p 127.0.0.1:9464:8080 rockhopper",
        "docker run -p 127.0.0.1:9464:9876 rockhopper",
        "clients are given `a:9876;b:10911`",
        "Open port 9464.",
        "It serves 127.0.0.1:7000.",
    ],
)
def test_another_port_is_found(text: str) -> None:
    assert faults(Page("docs/page.md", text)) != []
