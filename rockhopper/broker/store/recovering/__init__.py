"""After a stop, clean or not: what the files hold, what they should, and mending the difference."""
