"""RocketMQ's classic replication, from the master's side: slaves of Apache's that follow us."""
