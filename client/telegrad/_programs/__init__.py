"""Runs programs that were written for PyTorch: ``import torch`` gives them telegrad."""
