"""Acknowledged sends to this broker and to others, one after another on the same core."""
