"""Masked tensors, and reductions, normalizations and scans over the elements that a mask chooses."""

from __future__ import annotations

from ._creation import as_masked_tensor as as_masked_tensor
from ._creation import is_masked_tensor as is_masked_tensor
from ._creation import masked_tensor as masked_tensor
from ._masked_tensor import MaskedTensor as MaskedTensor
from ._reductions import amax as amax
from ._reductions import amin as amin
from ._reductions import argmax as argmax
from ._reductions import argmin as argmin
from ._reductions import cumprod as cumprod
from ._reductions import cumsum as cumsum
from ._reductions import log_softmax as log_softmax
from ._reductions import logaddexp as logaddexp
from ._reductions import logsumexp as logsumexp
from ._reductions import mean as mean
from ._reductions import median as median
from ._reductions import norm as norm
from ._reductions import normalize as normalize
from ._reductions import prod as prod
from ._reductions import softmax as softmax
from ._reductions import softmin as softmin
from ._reductions import std as std
from ._reductions import sum as sum
from ._reductions import var as var

__all__ = [
    "MaskedTensor", "amax", "amin", "argmax", "argmin", "as_masked_tensor", "cumprod", "cumsum", "is_masked_tensor",
    "log_softmax", "logaddexp", "logsumexp", "masked_tensor", "mean", "median", "norm", "normalize", "prod",
    "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip
