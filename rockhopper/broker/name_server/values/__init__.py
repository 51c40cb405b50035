"""The operators' values in a name server, and answers that wait until they are saved."""
