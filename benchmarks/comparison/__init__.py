"""Acknowledged sends to this broker and to others, one after the other on the same core."""
