"""Sends as written by clients of all kinds, and invalid ones, for tests of the hot pass."""

import json
from typing import Any, NamedTuple

from hypothesis import strategies as st

from rockhopper.protocol.command import decode_header
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.signing import ACCESS_KEY, SIGNATURE, Credentials, sign_fields
from rockhopper.protocol.store.message_codec import encode_batch


class Asked(NamedTuple):
    """One request: its header fields as JSON values, and its body."""

    code: int
    ext: dict[str, Any]
    body: bytes = b""
    flag: int | None = 0


def json_frame(asked: Asked, opaque: int, *, code_first: bool, has_blanks: bool = False) -> Frame:
    """Return a request in JSON; Python's json puts a blank after each separator."""
    header = {
        "code": asked.code,
        "extFields": asked.ext,
        "flag": asked.flag,
        "language": "JAVA",
        "opaque": opaque,
        "version": 479,
    }
    if not code_first:
        header["code"] = header.pop("code")
    separators = None if has_blanks else (",", ":")
    return 0, json.dumps(header, separators=separators).encode(), asked.body


def sign_asked(asked: Asked, credentials: Credentials) -> Asked:
    """Sign a request as its sender would; one that no broker can decode stays unsigned."""
    try:
        decoded = decode_header(*json_frame(asked, 1, code_first=True))
    except MalformedHeaderError:
        return asked
    signed = sign_fields(credentials, decoded.ext or {}, asked.body, 479)
    added = {name: signed[name] for name in (ACCESS_KEY, SIGNATURE)}
    return asked._replace(ext=asked.ext | added)


NAMES = ["TAGS", "KEYS", "a", "ключ", "XWAIT", "XDELAY", "XTRAN_MSG"]
SPECIAL = ["DELAY", "TRAN_MSG", "MSG_REGION", "INNER_NUM", "POP_CK", "REAL_TOPIC", "CLUSTER"]
VALUES = ["true", "false", "1", "3", "k1 k2", "TagA", "标签", "x y", "WAIT", "\U0001f600"]
KEYS = ["0A1B2C3D", "not alnum!", "ключ"]


@st.composite
def properties(draw: st.DrawFn) -> str:
    """Draw properties as a client library joins them: each name once, nothing empty."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    pairs = [(name, draw(st.sampled_from(VALUES))) for name in names]
    if draw(st.integers(0, 9)) == 0:
        pairs.append((draw(st.sampled_from(SPECIAL)), draw(st.sampled_from(VALUES))))
    if draw(st.integers(0, 3)):
        pairs.append(("WAIT", draw(st.sampled_from(["true", "false", "TRUE"]))))
    if draw(st.integers(0, 9)):
        key = KEYS[0] if draw(st.integers(0, 9)) else draw(st.sampled_from(KEYS))
        pairs.append(("UNIQ_KEY", key))
    pairs = draw(st.permutations(pairs))
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs)


def number(values: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    """Draw a number as Java (text) or ali-ons (bare) sends it; occasionally something else."""
    odd = st.sampled_from(
        ["", " 1", "x", "1.0", 1.0, 1.5, True, None, 2**31, str(2**63), "+1", "01"]
    )
    usual = st.one_of(values, values.map(str))
    return st.integers(0, 19).flatmap(lambda n: odd if n == 0 else usual)


BOOLEANS = st.sampled_from(
    ["false", "false", False, "true", True, "TRUE", "0", "1", 0, 1, "no", None]
)
TOPICS = st.sampled_from(
    ["orders"] * 12
    + ["unknown", "readonly", "writeonly", "Batches", "%RETRY%group", "SCHEDULE_TOPIC_XXXX", "a/b"]
    + [""]
)
GROUPS = st.sampled_from(["group"] * 30 + ["", "bad group", "g" * 200])


@st.composite
def sends(draw: st.DrawFn, *, batch: bool = False) -> Asked:
    # The hot path ignores c and d, which are for topics that do not exist yet.
    ext: dict[str, Any] = {
        "a": draw(GROUPS),
        "b": draw(TOPICS),
        "e": draw(number(st.integers(0, 3))),
        "f": draw(number(st.sampled_from([0, 0, 0, 1, 0x10, 4, 8, 0xC0]))),
        "g": draw(number(st.integers(0, 2**41))),
        "h": draw(number(st.sampled_from([0, 7, -1]))),
        "i": draw(properties()),
        "j": draw(number(st.integers(0, 20))),
        "k": draw(BOOLEANS),
        "m": draw(BOOLEANS) if draw(st.integers(0, 9)) == 0 else str(batch).lower(),
    }
    if draw(st.integers(0, 9)) == 0:
        del ext[draw(st.sampled_from(sorted(ext)))]
    if draw(st.integers(0, 19)) == 0:
        ext["rh"] = draw(st.sampled_from(["1", "0", 1]))
    ext |= {"c": "TBW102", "d": draw(st.sampled_from([4, "4"]))}
    flag = draw(st.sampled_from([0] * 10 + [2, 2, 1, 3, None]))
    body = draw(st.binary(max_size=40))
    if batch and draw(st.integers(0, 9)):
        inner = draw(st.lists(st.tuples(st.binary(max_size=10), properties()), max_size=3))
        body = encode_batch([(n, data, text.encode()) for n, (data, text) in enumerate(inner)])
    code = 320 if batch else draw(st.sampled_from([310] * 12 + [3100, 10]))
    return Asked(code, ext, body, flag)


# Properties that make a message wait elsewhere before it reaches its topic.
_DETOURS = [
    ["DELAY\x013\x02"],
    ["TRAN_MSG\x01true\x02", "PGROUP\x01group\x02"],
    ["TRAN_MSG\x01true\x02", "PGROUP\x01others\x02"],
]
_ODD_DETOURS = [
    ["DELAY\x0103\x02"],
    ["DELAY\x010\x02"],
    ["DELAY\x0199\x02"],
    ["DELAY\x01x\x02"],
    ["DELAY\x013\x02", "a\x01b\x02\x02"],
    ["DELAY\x013\x02", "\x01b\x02", "a\x01\x02"],
    ["DELAY\x013\x02", "twice\x011\x02", "twice\x012\x02"],
    ["DELAY\x013\x02", "more\x011\x011\x02"],
    ["DELAY\x013\x02", "TIMER_DELAY_SEC\x015\x02"],
    ["DELAY\x013\x02", "TRAN_MSG\x01true\x02", "PGROUP\x01group\x02"],
    ["DELAY\x013\x02", "REAL_TOPIC\x01bills\x02"],
    ["TRAN_MSG\x01true\x02"],
    ["TRAN_MSG\x01True\x02", "PGROUP\x01group\x02"],
    ["TRAN_MSG\x01false\x02", "PGROUP\x01group\x02"],
    ["TRAN_MSG\x01true\x02", "PGROUP\x01grün\x02"],
    ["TRAN_MSG\x01true\x02", "PGROUP\x01group\x02", "CHECK_IMMUNITY_TIME_IN_SECONDS\x015\x02"],
    ["TRAN_MSG\x01true\x02", "PGROUP\x01group\x02", "TRANSACTION_CHECK_TIMES\x015\x02"],
    ["TRAN_MSG\x01true\x02", "PGROUP\x01group\x02", "__transactionId__\x015\x02"],
    ["TRAN_MSG\x01true\x02", "PGROUP\x01group\x02", "MSG_REGION\x015\x02"],
]


@st.composite
def usual_sends(draw: st.DrawFn, *, batch: bool = False) -> Asked:
    """Draw sends as clients nearly always write them."""
    number = draw(st.sampled_from([str, int]))
    text = draw(st.lists(st.sampled_from(["TAGS\x01A\x02", "KEYS\x01k1 k2\x02", "a\x01b\x02"])))
    waits = draw(st.sampled_from(["", "WAIT\x01true\x02", "WAIT\x01false\x02"]))
    detour: list[str] = []
    if not batch and draw(st.integers(0, 2)) == 0:
        detour = draw(st.sampled_from(_DETOURS if draw(st.integers(0, 3)) else _ODD_DETOURS))
    sent = [*dict.fromkeys(text), waits, "UNIQ_KEY\x010A1B\x02", *detour]
    pairs = draw(st.permutations(sent))
    ext: dict[str, Any] = {
        "a": "group",
        "b": "orders",
        "c": "TBW102",
        "d": number(4),
        "e": number(draw(st.integers(0, 2))),
        "f": number(draw(st.sampled_from([0, 4] if detour else [0, 1, 0x10]))),
        "g": number(1_700_000_000_000),
        "h": number(draw(st.sampled_from([0, -7]))),
        "i": "".join(pairs),
        "j": number(0),
        "k": "false",
        "m": str(batch).lower(),
    }
    body = draw(st.binary(max_size=200))
    if batch:
        inner = draw(st.lists(st.tuples(st.binary(max_size=10), st.sampled_from([*text, ""]))))
        body = encode_batch([(n, data, some.encode()) for n, (data, some) in enumerate(inner)])
    return Asked(320 if batch else 310, ext, body, draw(st.sampled_from([0, 0, 0, 2])))
