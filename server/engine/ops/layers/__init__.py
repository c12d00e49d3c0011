"""Implementations of what layers of neural networks compute, forward and backward, and of losses."""
