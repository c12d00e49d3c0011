"""``torch._tensor_str``: how tensors are printed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from telegrad._tensor import formatting
from telegrad._tensor.tensor import Tensor


class _PrintOptions:
    """The options that are set now, as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return formatting.get_printoptions()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        formatting.set_printoptions(**{**formatting.get_printoptions(), name: value})


PRINT_OPTS = _PrintOptions()


@contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """Print tensors with other options, those of `set_printoptions`, in this block."""
    before = formatting.get_printoptions()
    formatting.set_printoptions(**kwargs)
    try:
        yield
    finally:
        formatting.set_printoptions(**before)


def _tensor_str(self: Tensor, indent: int) -> str:
    """Return the elements of a tensor as text, later lines indented."""
    text: Any = repr(self.detach())
    return str(text).removeprefix("tensor(").removesuffix(")").replace("\n       ", "\n" + " " * indent)


def _str(self: Tensor, *, tensor_contents: Any = None) -> str:
    return repr(self)
