"""PyTorch's operator database on the meta device, against the shapes of PyTorch's results: ``make opinfo-shapes``.

No server takes part. An entry passes if shapes and dtypes of all results are those that PyTorch computes on the CPU,
for every sample. An entry whose result's shape depends on the elements passes if telegrad says so.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from typing import Any, Final

import torch

import telegrad

from .entry import FORWARD, _call, _leaves, _samples
from .scope import reason
from .served import Served, to_telegrad, unwrapped

_DATA: Final = ("has a shape and no elements", "no data!")
"""What telegrad says where a result depends on elements."""


def _on_meta(value: Any) -> Any:
    """A tensor's stand-in on the meta device, which has its shape, strides and dtype."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    return Served(to_telegrad(value.detach().to("meta")))


def check(info: Any) -> str:
    """Return ``passed``, ``data`` where elements are needed, or what is wrong with the first sample that fails."""
    dtype = next((d for d in FORWARD if info.supports_dtype(d, "cpu")), torch.float64)
    outcome = "passed"
    for sample in _samples(info, dtype):
        theirs = info.op(sample.input, *sample.args, **sample.kwargs)
        given = sample.transform(_on_meta)
        kwargs = {key: "meta" if key == "device" else value for key, value in given.kwargs.items()}
        try:
            with telegrad.device("meta"):
                ours = _call(info, info.op, given.input, *given.args, **kwargs)
        except Exception as error:
            if any(part in str(error) for part in _DATA):
                outcome = "data"
                continue
            return f"{type(error).__name__}: {str(error)[:160]}"
        mine = list(_leaves(unwrapped(ours)))
        reference = list(_leaves(theirs))
        if len(mine) != len(reference):
            return f"{len(mine)} results for {len(reference)}"
        for own, other in zip(mine, reference, strict=True):
            if isinstance(other, torch.Tensor) and (
                tuple(own.shape) != tuple(other.shape)
                or str(own.dtype).partition(".")[2] != str(other.dtype).partition(".")[2]
            ):
                return f"{own.dtype}{tuple(own.shape)} for {other.dtype}{tuple(other.shape)}"
    return outcome


def main() -> int:
    """Run the sweep and print what does not pass."""
    from tests.ops.database import op_db

    parser = argparse.ArgumentParser(prog="python -m conformance.shapes", description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression of names")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what failed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    outcomes: Counter[str] = Counter()
    for info in op_db:
        if not re.search(options.only, info.name) or reason(info.name):
            continue
        outcome = check(info)
        kind = outcome if outcome in ("passed", "data") else "failed"
        outcomes[kind] += 1
        if options.verbose and kind != "passed":
            print(f"{info.name} {info.variant_test_name}: {outcome}", flush=True)
    known = outcomes.total() - outcomes["data"]
    print(f"{dict(outcomes)}: {outcomes['passed']} of {known} whose shape is known, {outcomes['passed'] / known:.1%}")
    return 0 if not outcomes["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
