"""Scheduled messages: delay levels and timers."""
