"""Sparse tensors, against PyTorch."""
