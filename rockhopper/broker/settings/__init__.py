"""What an operator sets: the keys, their defaults, the files and addresses they come to."""
