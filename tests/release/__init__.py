"""What is released: an sdist and wheels, tried, with checksums and a bill of materials."""
