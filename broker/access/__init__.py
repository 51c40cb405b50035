"""Who may do what with which resource: the one question of every door, and what answers it."""
