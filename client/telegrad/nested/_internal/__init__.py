"""What programs take from PyTorch's modules behind ``torch.nested``: the class of jagged tensors and its makers."""

from __future__ import annotations
