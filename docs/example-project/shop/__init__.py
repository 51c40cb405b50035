"""A shop whose parts talk over a broker."""
