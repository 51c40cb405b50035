"""The functions of the RPCs: each checks its request, calls the kernel, and replies."""
