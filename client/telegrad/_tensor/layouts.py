"""The layout of tensors in memory, which telegrad has one of: elements at strides."""

from __future__ import annotations

from typing import Final


class Layout:
    """How a tensor's elements lie in memory; every layout is one object, compared by identity."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"telegrad.{self.name}"


strided: Final = Layout("strided")
