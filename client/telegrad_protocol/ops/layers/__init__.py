"""Contracts of what layers of neural networks compute, and of losses."""
