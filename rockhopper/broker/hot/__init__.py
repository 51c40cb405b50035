"""The hot pass: the requests that make up nearly all traffic, and the compiled code for them."""
