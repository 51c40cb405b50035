"""Expiring: files of an archive whose messages are old are removed."""
