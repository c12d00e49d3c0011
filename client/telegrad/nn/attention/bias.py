"""Causal masks for attention between queries and keys of different number, as in ``torch.nn.attention.bias``."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from telegrad._ops.functions import function
from telegrad._session.devices import DeviceLike
from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional
from telegrad_protocol.dtypes import bool_
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """Which corner of the scores the diagonal of a causal mask begins or ends in."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias:
    """A causal mask for ``scaled_dot_product_attention``, which makes it where the queries are."""

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        if not isinstance(variant, CausalVariant):
            raise ArgumentTypeError(f"CausalBias: expected a CausalVariant, not {variant!r}")
        self.variant = variant
        self.seq_len_q = seq_len_q
        self.seq_len_kv = seq_len_kv

    @property
    def shape(self) -> tuple[int, int]:
        return self.seq_len_q, self.seq_len_kv

    @property
    def _diagonal(self) -> int:
        return 0 if self.variant is CausalVariant.UPPER_LEFT else self.seq_len_kv - self.seq_len_q

    def _materialize(self, device: DeviceLike = None) -> Tensor:
        """Return what the mask lets through, as bools of (seq_len_q, seq_len_kv)."""
        ones = function("ones")(self.shape, dtype=bool_, device=device)
        return ones.tril(self._diagonal)  # type: ignore[no-any-return]

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute attention under the mask; nothing else takes one."""
        if func is not functional.scaled_dot_product_attention:
            raise NotSupportedError(
                f"CausalBias: {getattr(func, '__name__', func)} takes no causal bias, only scaled_dot_product_attention"
            )
        named = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale"), args))
        named.update(kwargs or {})
        bias: CausalBias = named.pop("attn_mask")
        if named.pop("is_causal", False):
            raise ArgumentError("CausalBias should not be used with causal=True")
        if bias._diagonal == 0:
            return func(**named, is_causal=True)
        return func(**named, attn_mask=bias._materialize(named["query"].device))

    def __repr__(self) -> str:
        return repr(self._materialize())


def causal_upper_left(*size: int) -> CausalBias:
    """Return the mask by which the first query sees the first key alone; ``size`` are the numbers of both."""
    return CausalBias(CausalVariant.UPPER_LEFT, *_both("causal_upper_left", size))


def causal_lower_right(*size: int) -> CausalBias:
    """Return the mask by which the last query sees all keys; ``size`` are the numbers of queries and keys."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *_both("causal_lower_right", size))


def _both(name: str, size: tuple[int, ...]) -> tuple[int, int]:
    if len(size) != 2:
        raise ArgumentError(f"{name} only supports 2D tensors, got {len(size)} sizes")
    return size[0], size[1]
