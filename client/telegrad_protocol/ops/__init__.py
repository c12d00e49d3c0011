"""The operation table: one contract per operation, by family, in a fixed order that both ends share.

A file is a family, and large fields have folders of families: ``fourier``, ``layers`` and ``linear_algebra``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from .contract import PUBLIC, TABLE, Op, Scalar

__all__ = ["BY_INDEX", "PUBLIC", "TABLE", "Op", "Scalar", "table_hash"]

from . import views  # noqa: I001 - the order of families is the order of the table
from . import creation
from . import random
from . import splitting
from . import rearrange
from . import pointwise
from . import extremes
from . import complex
from . import elementary
from . import comparison
from .layers import activations
from . import reduce
from . import spread
from . import scans
from .layers import softmax
from . import special
from . import bessel
from . import sorting
from . import quantiles
from . import binary
from .linear_algebra import linalg
from .linear_algebra import factorizations
from .linear_algebra import spectra
from .linear_algebra import solvers
from .linear_algebra import matrix_functions
from .linear_algebra import legacy_linalg
from .fourier import fft
from .fourier import window_functions
from .fourier import stft
from . import indexing
from . import scattering
from . import sparse
from .layers import nn
from .layers import attention
from .layers import convolution
from .layers import pooling
from .layers import normalization
from .layers import rnn
from .layers import losses
from .layers import ctc
from . import optim
from . import foreach
from . import amp

BY_INDEX: list[Op] = list(TABLE.values())
FAMILIES = (
    views, creation, random, splitting, rearrange, pointwise, extremes, complex, elementary, comparison, activations,
    reduce, spread, scans, softmax, special, bessel, sorting, linalg, factorizations, spectra, solvers,
    matrix_functions, legacy_linalg, fft, indexing, scattering, sparse, nn, attention, convolution, pooling,
    normalization, rnn, losses, ctc, optim, foreach, amp, window_functions, stft, quantiles, binary,
)  # fmt: skip


def contract(name: str) -> Op:
    """The operation of a unique name, such as ``"max.dim"``."""
    return TABLE[name]


@cache
def table_hash() -> str:
    """A digest of all names and signatures, by which both ends know that they have the same table.

    OpenSSL is loaded here, and not by everybody who imports the table.
    """
    names = "\n".join(f"{op.name} {op.signature}" for op in BY_INDEX)
    digest: str = import_module("hashlib").sha256(names.encode()).hexdigest()
    return digest
