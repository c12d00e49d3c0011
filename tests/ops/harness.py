"""One operator test, whatever the operator: the same call in torch and in telegrad, everything observable compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from telegrad_protocol import dtypes

from .adapters import OURS_TO_TORCH, to_torch

TOLERANCES = {
    torch.float64: (1e-9, 1e-10), torch.complex128: (1e-9, 1e-10), torch.float32: (2e-5, 2e-6),
    torch.complex64: (2e-5, 2e-6), torch.float16: (4e-3, 1e-3), torch.bfloat16: (2e-2, 1e-2),
}  # fmt: skip


def tree_map(function: Callable[[torch.Tensor], Any], other: Callable[[Any], Any], thing: Any) -> Any:
    """Rebuild nested arguments with tensors and leaves replaced."""
    if isinstance(thing, torch.Tensor):
        return function(thing)
    if isinstance(thing, (list, tuple)) and not isinstance(thing, torch.Size):
        return type(thing)(tree_map(function, other, t) for t in thing)
    if isinstance(thing, torch.Size):
        return tuple(thing)
    if isinstance(thing, dict):
        return {k: tree_map(function, other, v) for k, v in thing.items()}
    return other(thing)


def flatten(result: Any) -> list[Any]:
    """Tensors of a result, in order."""
    if isinstance(result, (list, tuple)):
        return [r for part in result for r in flatten(part)]
    return [result] if result is not None else []


class Comparison:
    """Runs one call on both sides and compares values, dtype, shape, strides, gradients and second gradients."""

    def __init__(self, adapter: Any, check_strides: bool = True, slack: float = 1.0, sums: bool = False) -> None:
        self.adapter = adapter
        self.slack = slack
        self.sums = sums
        self.check_strides = check_strides

    def run(
        self,
        theirs: Callable[..., Any],
        ours: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        *,
        gradients: bool = True,
        second: bool = True,
        values: bool = True,
    ) -> None:
        pairs: list[tuple[torch.Tensor, Any]] = []

        def convert(tensor: torch.Tensor) -> Any:
            mine = self.adapter.tensor(tensor, tensor.requires_grad)
            pairs.append((tensor, mine))
            return mine

        our_args = tree_map(convert, self.adapter.convert, list(args))
        our_kwargs = tree_map(convert, self.adapter.convert, dict(kwargs))
        expected = flatten(theirs(*args, **kwargs))
        results = flatten(ours(*our_args, **our_kwargs))
        assert len(results) == len(expected), f"{len(results)} results, expected {len(expected)}"
        for mine, reference in zip(results, expected, strict=True):
            self.compare(mine, reference, values=values)
        if gradients:
            self._gradients(expected, results, [p for p in pairs if p[0].requires_grad], second)

    def compare(self, mine: Any, reference: Any, *, values: bool = True, what: str = "result") -> None:
        if not isinstance(reference, torch.Tensor):
            assert mine == reference, f"{what}: {mine!r} != {reference!r}"
            return
        dtype = OURS_TO_TORCH[self.adapter.dtype(mine)]
        assert dtype == reference.dtype, f"{what}: dtype {dtype}, expected {reference.dtype}"
        array = self.adapter.numpy(mine)
        assert array.shape == tuple(reference.shape), f"{what}: shape {array.shape}, expected {tuple(reference.shape)}"
        if self.check_strides and what == "result" and reference.numel() > 0:
            strides = significant(reference.shape, self.adapter.strides(mine))
            wanted = significant(reference.shape, reference.stride())
            assert strides == wanted, f"{what}: strides {self.adapter.strides(mine)}, expected {reference.stride()}"
        if values:
            assert_close(to_torch(array), reference.cpu(), what, self.slack, self.sums or "gradient" in what)

    def _gradients(
        self, expected: list[Any], results: list[Any], leaves: list[tuple[torch.Tensor, Any]], second: bool
    ) -> None:
        chosen = [
            (e, f) for e, f in zip(expected, results, strict=True) if isinstance(e, torch.Tensor) and e.requires_grad
        ]
        for e, f in zip(expected, results, strict=True):
            if isinstance(e, torch.Tensor):
                assert self.adapter.requires_grad(f) == e.requires_grad, f"requires_grad should be {e.requires_grad}"
        if not chosen or not leaves:
            return
        cotangents = [torch.randn_like(e).requires_grad_() for e, _ in chosen]
        mine = [self.adapter.tensor(c, True) for c in cotangents]
        theirs = torch.autograd.grad(
            [e for e, _ in chosen], [t for t, _ in leaves], cotangents, create_graph=True, allow_unused=True
        )
        ours = self.adapter.grad([f for _, f in chosen], mine, [m for _, m in leaves], True)
        self._compare_gradients(ours, theirs, "gradient")
        if second:
            self._second(theirs, ours, [*leaves, *zip(cotangents, mine, strict=True)])

    def _second(self, theirs: Sequence[Any], ours: Sequence[Any], leaves: list[tuple[Any, Any]]) -> None:
        pairs = [
            (t, o) for t, o in zip(theirs, ours, strict=True) if t is not None and o is not None and t.requires_grad
        ]
        if not pairs:
            return
        directions = [torch.randn_like(t) for t, _ in pairs]
        expected = torch.autograd.grad([t for t, _ in pairs], [t for t, _ in leaves], directions, allow_unused=True)
        mine = [self.adapter.tensor(d) for d in directions]
        results = self.adapter.grad([o for _, o in pairs], mine, [m for _, m in leaves], False)
        self._compare_gradients(results, expected, "second gradient")

    def _compare_gradients(self, ours: Sequence[Any], theirs: Sequence[Any], what: str) -> None:
        for mine, reference in zip(ours, theirs, strict=True):
            if reference is None or mine is None:
                other = mine if reference is None else reference
                is_zero = other is None or not np.any(np.asarray(self._plain(other)))
                assert is_zero, f"{what}: one side has none, the other {other}"
                continue
            self.compare(mine, reference.detach(), what=what)

    def _plain(self, thing: Any) -> Any:
        return (
            thing.detach().to(torch.complex128).numpy()
            if isinstance(thing, torch.Tensor)
            else self.adapter.numpy(thing).astype(complex)
        )


def significant(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Strides of dimensions that have more than one element; the others say nothing."""
    return [stride for size, stride in zip(shape, strides, strict=True) if size > 1]


def assert_close(
    mine: torch.Tensor, reference: torch.Tensor, what: str, slack: float = 1.0, sums: bool = False
) -> None:
    """Equal within the rounding of the dtype, times ``slack``; of the largest element for ``sums``. NaN equals NaN."""
    relative, absolute = (slack * tolerance for tolerance in TOLERANCES.get(reference.dtype, (0, 0)))
    if sums and absolute and reference.numel():
        # Elements that are sums of larger terms, as un-broadcast gradients are, inherit the rounding of those terms.
        absolute *= max(1.0, torch.nan_to_num(reference.detach().abs().double(), 0, 0, 0).max().item())
    torch.testing.assert_close(
        mine,
        reference.detach().resolve_conj().resolve_neg(),
        rtol=relative,
        atol=absolute,
        equal_nan=True,
        check_stride=False,
        msg=lambda m: f"{what}: {m}",
    )


__all__ = ["Comparison", "assert_close", "dtypes", "flatten", "tree_map"]
