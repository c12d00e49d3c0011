"""Operands that calls treat in a way of their own: expanded targets, and tensors made in inference mode."""
