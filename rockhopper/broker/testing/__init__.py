"""A broker for the tests of other projects."""
