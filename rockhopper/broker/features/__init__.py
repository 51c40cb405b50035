"""Features: each lives in one folder and declares itself once."""
