"""The way of a message from the application to a broker."""
