"""What ``autograd.function.Function`` is made of: contexts of calls, their nodes, and tangents; nothing public."""
