"""Nested tensors: batches of tensors of other sizes, in both layouts, compared with PyTorch's."""
