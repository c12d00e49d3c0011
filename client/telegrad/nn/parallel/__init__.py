"""Modules on several GPUs of a session, as in ``torch.nn.parallel``: copies of a module, each on a part of a batch.

The files have PyTorch's names. The copies are run one after the other, since a call only queues work: the GPUs work at
the same time.
"""

from __future__ import annotations

from .data_parallel import DataParallel as DataParallel
from .data_parallel import data_parallel as data_parallel
from .distributed import DistributedDataParallel as DistributedDataParallel
from .parallel_apply import parallel_apply as parallel_apply
from .replicate import replicate as replicate
from .scatter_gather import gather as gather
from .scatter_gather import scatter as scatter
from .scatter_gather import scatter_kwargs as scatter_kwargs

__all__ = [
    "DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter",
    "scatter_kwargs",
]  # fmt: skip
