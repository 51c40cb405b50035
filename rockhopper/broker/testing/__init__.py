"""A broker inside of somebody's tests."""
