"""Transactional messages: half messages, their ends, and asking producers how theirs ended."""
