"""Events of HTTP/2 connections, to compare them."""

from rockhopper.protocol.http2.connection import Event, Received, RequestStarted


def by_stream(events: list[Event]) -> dict[int, list[Event]]:
    """Return the events of each stream; a request that came at once is split into its parts."""
    found: dict[int, list[Event]] = {}
    for event in events:
        mine = found.setdefault(event.stream_id, [])
        if isinstance(event, RequestStarted) and event.is_end:
            mine.append(RequestStarted(event.stream_id, event.fields, False))
            mine.append(Received(event.stream_id, event.body, is_end=True))
        else:
            mine.append(event)
    return found
