"""Who is connected: consumers and producers by group, what they are told, what they lock."""
