"""Listening on ports: accept, inspect the first bytes, TLS or plain, hand over to the protocol."""
