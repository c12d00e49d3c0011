"""The classes of PyTorch's storages, which programs name in annotations. Memory is the server's; no tensor has one."""

from __future__ import annotations

from typing import Any

from telegrad_protocol.errors import NotSupportedError

__all__ = ["TypedStorage", "UntypedStorage"]


class UntypedStorage:
    """Bytes of a tensor: never made here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotSupportedError(
            f"{type(self).__name__}: memory is the server's, and a tensor has no storage object; "
            "use the tensor, or tensor.numpy()"
        )


class TypedStorage(UntypedStorage):
    """Elements of a tensor: never made here."""
