"""Layers, losses and their functions, as in ``torch.nn``."""
