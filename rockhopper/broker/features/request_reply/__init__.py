"""Request and reply: a consumer answers a message; the broker pushes the answer to its sender."""
