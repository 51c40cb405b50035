"""The broker's statistics and its log."""
