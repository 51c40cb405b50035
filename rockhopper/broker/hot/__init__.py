"""The hot pass: what makes up nearly all traffic, and the compiled code that serves it."""
