"""Processes that a program for PyTorch starts: each opens a session of its own, and has telegrad as ``torch``."""
