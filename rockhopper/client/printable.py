"""Formats text and bodies on one line that is safe to print on a terminal."""

_NOT_FOR_TERMINALS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_NOT_FOR_TERMINALS.update({ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"})
# Characters that change the text direction: they would disguise the rest of the line.
_TURNING = (0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_NOT_FOR_TERMINALS.update({code: f"\\u{code:04x}" for code in _TURNING})
_NOT_FOR_TERMINALS_IN_JSON = {code: f"\\u{code:04x}" for code in (*range(127, 160), *_TURNING)}
_BINARY_PREVIEW_BYTES = 24


def make_printable(text: str) -> str:
    """Return `text` with control and direction characters escaped."""
    return text.translate(_NOT_FOR_TERMINALS)


def make_printable_json(document: str) -> str:
    """Return a JSON text of the same value with the control characters in its strings escaped."""
    return document.translate(_NOT_FOR_TERMINALS_IN_JSON)


def format_age(age_ms: int) -> str:
    """Return a duration as text, in the largest unit of days, hours, minutes or seconds."""
    for unit, length_ms in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        if (count := age_ms // length_ms) > 0:
            return f"{count:,} {unit}" if count == 1 else f"{count:,} {unit}s"
    return f"{age_ms / 1000:.0f} s"


def decode_text(body: bytes) -> str | None:
    """Return the body as text, None if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def format_preview(body: bytes) -> str:
    """Return a body on one line, safe for a terminal; binary data is shown in hex."""
    text = decode_text(body)
    if text is not None:
        return make_printable(text)
    start = body[:_BINARY_PREVIEW_BYTES].hex(" ")
    more = " …" if len(body) > _BINARY_PREVIEW_BYTES else ""
    return f"<{len(body):,} bytes: {start}{more}>"
