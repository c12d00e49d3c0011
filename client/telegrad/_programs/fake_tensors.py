"""``torch._subclasses``: tensors without elements, which PyTorch's compiler makes. There are none here."""

from __future__ import annotations

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import NotSupportedError

__all__ = ["FakeTensor", "FakeTensorMode", "is_fake"]


class FakeTensor(Tensor):
    """The class of such tensors, for ``isinstance``."""


class FakeTensorMode:
    """The mode that makes them, which is refused."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise NotSupportedError("FakeTensorMode: telegrad does not trace Python; use real tensors")


def is_fake(x: object) -> bool:
    """Whether an object is such a tensor: it never is."""
    return False
