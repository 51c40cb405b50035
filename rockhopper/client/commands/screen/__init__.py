"""What fits on a terminal, what is shown there again and again, and the live view."""
