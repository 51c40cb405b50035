"""The broker's settings: keys, defaults, and the files and addresses derived from them."""
