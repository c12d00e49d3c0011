"""Operators that take functions: flat lists of tensors in and out, and nodes of graphs where calls are traced."""
