"""Search messages by key, tag, body or condition, in stores and archives together."""
