"""What writes: queues and index made anew, a log without its damage, backups and their return."""
