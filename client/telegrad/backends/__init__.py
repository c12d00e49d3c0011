"""How the server computes: precision, libraries and determinism, under ``torch.backends``' names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from telegrad._lazy import lazy

from . import cuda, cudnn

__all__ = ["cpu", "cuda", "cudnn", "mps"]

if TYPE_CHECKING:
    from . import cpu, mps
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "cpu": "",
            "mps": "",
            "host_libraries": "cusparselt kleidiai miopen mkl mkldnn nnpack openmp opt_einsum quantized xnnpack",
        },
    )
