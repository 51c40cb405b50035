"""Read messages back: by queue and by tag, one and many."""
