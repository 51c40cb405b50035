"""Run several brokers of one cluster, one for each core, under one parent process."""
