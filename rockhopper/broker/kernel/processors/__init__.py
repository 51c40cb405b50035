"""Processors: one module for each family of requests; ``table`` maps request codes to them."""
