"""What serves the RPCs: each checks its request, asks one of the broker's rooms, and replies."""
