"""What each page of the console asks and shows."""
