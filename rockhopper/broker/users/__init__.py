"""Who asks, what they may do, and why something is refused."""
