"""Priority: the priority of a message is the number of its queue."""
