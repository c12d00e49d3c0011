"""What ``benchmarks.bandwidth`` runs of reductions, cumulative operations and sorting."""

from __future__ import annotations

from typing import Any

import torch

from .bandwidth_cases import ELEMENTS, SQUARE, Case, normal

_FLAT = (ELEMENTS,)
_TALL = (1 << 16, 1 << 10)
_THIN = (1 << 20, 1 << 6)
_IMAGES = (64, 256, 64, 64)


def _over(family: str, name: str, shape: tuple[int, ...], what: str, *args: Any, **kwargs: Any) -> Case:
    """A function of one tensor that both sides call alike."""
    return Case(
        family, f"{name}, {'x'.join(map(str, shape))}", normal(shape),
        lambda F, x: getattr(F, what)(x, *args, **kwargs), lambda x: getattr(torch, what)(x, *args, **kwargs),
    )  # fmt: skip


def _reductions() -> list[Case]:
    each = (("sum", ()), ("mean", ()), ("amax", ()), ("argmax", ()), ("var", ()), ("norm", (2,)))
    full = [_over("reductions", f"{what} of all", _FLAT, what) for what, _ in each if what != "argmax"]
    rows = [_over("reductions", f"{what} of rows", SQUARE, what, *args, 1) for what, args in each]
    columns = [_over("reductions", f"{what} of columns", SQUARE, what, *args, 0) for what, args in each]
    others = [
        _over("reductions", "argmax of all", _FLAT, "argmax"),
        _over("reductions", "max with places of rows", SQUARE, "max", 1),
        _over("reductions", "logsumexp of rows", SQUARE, "logsumexp", 1),
        _over("reductions", "sum of short rows", _THIN, "sum", 1),
        _over("reductions", "sum of 1,024 columns", _TALL, "sum", 0),
        _over("reductions", "sum of 64 columns", _THIN, "sum", 0),
        _over("reductions", "var of short rows", _THIN, "var", 1),
        _over("reductions", "sum of channels", _IMAGES, "sum", (0, 2, 3)),
        _over("reductions", "sum of odd rows", (ELEMENTS // 1023, 1023), "sum", 1),
        _over("reductions", "sum of odd columns", (ELEMENTS // 1023, 1023), "sum", 0),
    ]
    return [*full, *rows, *columns, *others]


def _scans() -> list[Case]:
    return [
        _over("scans", "cumsum", _FLAT, "cumsum", 0),
        _over("scans", "cumsum of rows", SQUARE, "cumsum", 1),
        _over("scans", "cumsum of columns", SQUARE, "cumsum", 0),
        _over("scans", "cumsum of short rows", _THIN, "cumsum", 1),
        _over("scans", "cummax of rows", SQUARE, "cummax", 1),
    ]


def _sorting() -> list[Case]:
    return [
        _over("sorting", "sort", _FLAT, "sort"),
        _over("sorting", "sort of rows", SQUARE, "sort"),
        _over("sorting", "sort of 1,024", _TALL, "sort"),
        _over("sorting", "sort of short rows", _THIN, "sort"),
        _over("sorting", "topk 50 of rows", SQUARE, "topk", 50),
        _over("sorting", "topk 50", _FLAT, "topk", 50),
        _over("sorting", "topk 5 of short rows", _THIN, "topk", 5),
        _over("sorting", "median of rows", SQUARE, "median", 1),
    ]


CASES: list[Case] = [*_reductions(), *_scans(), *_sorting()]
