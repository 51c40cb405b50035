"""Pulls: long polling, filters, and the readers' positions."""
