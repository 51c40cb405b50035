"""Text and bodies on one line that is safe to show on a terminal."""

_NOT_FOR_TERMINALS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_NOT_FOR_TERMINALS.update({ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"})
_BINARY_PREVIEW_BYTES = 24


def printable(text: str) -> str:
    """Return `text` with control characters escaped, so that it cannot command the terminal."""
    return text.translate(_NOT_FOR_TERMINALS)


def body_text(body: bytes) -> str | None:
    """Return the body as text, None if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def body_preview(body: bytes) -> str:
    """Return a body on one line, safe for a terminal; bytes that are no text in hex."""
    text = body_text(body)
    if text is not None:
        return printable(text)
    start = body[:_BINARY_PREVIEW_BYTES].hex(" ")
    more = " …" if len(body) > _BINARY_PREVIEW_BYTES else ""
    return f"<{len(body):,} bytes: {start}{more}>"
