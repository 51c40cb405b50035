"""Sending: the path of a message from the application to a broker."""
