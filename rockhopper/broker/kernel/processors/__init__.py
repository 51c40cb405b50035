"""One module per family of requests; ``table`` maps request codes to them."""
