"""Products that processes of this machine asked cuBLASLt about, each a line of a log, with the algorithm it proposed.

They hold for one version of the library and one kind of device.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from server.engine.cuda.runtime.launch import architecture, multiprocessors
from server.engine.cuda.runtime.used_before import used_before
from telegrad_protocol import dtypes
from telegrad_protocol.errors import DTypeError

from . import cublaslt
from .cublaslt import Algorithm, Problem, Side

MOST_BEFOREHAND: Final = 128
"""So many products are computed beforehand, which takes a fifth of a second: each loads a kernel of its own."""
_KIND: Final = "product"


def note(device: int, problem: Problem, algorithm: Algorithm) -> None:
    """Write down what was proposed for a product."""
    sides = [[side.dtype.name, *side[1:]] for side in problem[:4]]
    scales = [[factor.real, factor.imag] for factor in (complex(problem.alpha), complex(problem.beta))]
    described = [
        sides, [int(number) for number in problem[4:10]], scales, problem.bias_alignment, problem.c is problem.d,
        algorithm.opaque.tobytes().hex(), algorithm.workspace,
    ]  # fmt: skip
    used_before(architecture(device)).note(_KIND, json.dumps([_held(device), *described], separators=(",", ":")))


def last(device: int) -> Iterator[tuple[Problem, Algorithm]]:
    """Return the products that were asked about last, and their algorithms, which are to be checked."""
    for line in used_before(architecture(device)).of_kind(_KIND)[:MOST_BEFOREHAND]:
        try:
            held, *described = json.loads(line)
            if held == _held(device):
                yield _read(*described)
        except (ValueError, TypeError, DTypeError):  # a line that was cut short, or that another version wrote
            continue


def _held(device: int) -> list[Any]:
    """Return what algorithms are only good for."""
    return [cublaslt.version(), multiprocessors(device)]


def _read(
    sides: list[Any], numbers: list[int], scales: list[list[float]], bias_alignment: int, is_in_place: bool,
    opaque: str, workspace: int,
) -> tuple[Problem, Algorithm]:  # fmt: skip
    a, b, c, d = [Side(dtypes.named(name), *sizes) for name, *sizes in sides]
    transposes_a, transposes_b, batch, compute, epilogue, reductions = numbers
    alpha, beta = [complex(*parts) if parts[1] else parts[0] for parts in scales]
    problem = Problem(
        a, b, d if is_in_place else c, d, bool(transposes_a), bool(transposes_b), batch, compute, epilogue, reductions,
        alpha, beta, bias_alignment,
    )  # fmt: skip
    return problem, Algorithm.of(np.frombuffer(bytes.fromhex(opaque), np.uint8).copy(), workspace)
