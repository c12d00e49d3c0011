"""PyTorch's database of operators, without what it does with every list of samples, or every sample, for its own tests.

It walks over the whole stack, and all loaded modules for each frame, in search of the ``unittest.TestCase`` that asks;
there is none here. And it seeds all devices; one that was not used yet writes down the stack. Both take longer than
most samples do.
"""

from __future__ import annotations

import random

import numpy as np
import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core

__all__ = ["op_db"]


def _seed(seed: int | None = None) -> None:
    seed = common_utils.SEED if seed is None else seed
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


common_utils.set_rng_seed = _seed
common_utils.extract_test_fn = core.extract_test_fn = lambda: None
