"""Points that fill a cube evenly. SciPy, which has to be installed, computes them here."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np

from telegrad._functions.creation import from_numpy, get_default_device
from telegrad._tensor.tensor import Tensor
from telegrad.utils.data.draws import drawn_seed
from telegrad_protocol.dtypes import DType, get_default_dtype
from telegrad_protocol.errors import ArgumentError


class SobolEngine:
    """Draws Sobol points; with ``scramble`` other ones for each seed, with other numbers than PyTorch's."""

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ArgumentError(f"SobolEngine: dimension must be in [1 .. {self.MAXDIM}], not {dimension}")
        self.dimension, self.scramble, self.seed, self.num_generated = dimension, scramble, seed, 0
        self._start = seed if seed is not None or not scramble else drawn_seed()
        self._points = self._begun()

    def _begun(self) -> Any:
        try:
            qmc = import_module("scipy.stats.qmc")
        except ImportError:
            raise ImportError("torch.quasirandom.SobolEngine needs the package scipy: pip install scipy") from None
        return qmc.Sobol(self.dimension, scramble=self.scramble, bits=self.MAXBIT, rng=self._start)

    def draw(self, n: int = 1, out: Any = None, dtype: DType | None = None) -> Tensor:
        """Return the next ``n`` points, as rows of numbers in [0, 1)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numbers of points that are no powers of two
            points = self._points.random(n) if n else np.zeros((0, self.dimension))
        self.num_generated += n
        drawn: Any = from_numpy(points).to(get_default_device()).to(dtype or get_default_dtype())
        return drawn if out is None else out.resize_(drawn.shape).copy_(drawn)  # type: ignore[no-any-return]

    def draw_base2(self, m: int, out: Any = None, dtype: DType | None = None) -> Tensor:
        """Return the next ``2 ** m`` points; their number and that of all before must be a power of two."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ArgumentError(f"SobolEngine: {self.num_generated} points and 2**{m} more are no power of two")
        return self.draw(2**m, out, dtype)

    def reset(self) -> SobolEngine:
        """Begin anew."""
        self._points.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out the next ``n`` points."""
        self._points.fast_forward(n)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        scrambled = ", scramble=True" if self.scramble else ""
        return f"SobolEngine(dimension={self.dimension}{scrambled}{'' if self.seed is None else f', seed={self.seed}'})"
