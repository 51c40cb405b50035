"""Election: which replica of a set leads, what is confirmed, and which replica may lead next."""
