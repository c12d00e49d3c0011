"""Libraries that PyTorch may have on a CPU and a server has not, under the names of ``torch.backends``.

Each says that it is not available, and takes the switches that programs set, which change nothing: the server's CPU
kernels are NumPy's and SciPy's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final


class _Library(ModuleType):
    """A library that is not there."""

    def is_available(self) -> bool:
        """Whether the server computes with it: it does not."""
        return False

    @contextmanager
    def flags(self, **settings: Any) -> Iterator[None]:
        """Take switches for a block; they change nothing."""
        yield

    @contextmanager
    def verbose(self, enable: int) -> Iterator[None]:
        """Do nothing: the library prints nothing, since it is not used."""
        yield


def _library(name: str, **switches: Any) -> _Library:
    library = _Library(f"{__name__}.{name}", f"{name}, which the server does not compute with.")
    vars(library).update(switches)
    sys.modules[library.__name__] = library
    return library


mkl: Final = _library("mkl", VERBOSE_OFF=0, VERBOSE_ON=1)
mkldnn: Final = _library(
    "mkldnn", VERBOSE_OFF=0, VERBOSE_ON=1, VERBOSE_ON_CREATION=2, enabled=False, deterministic=False, allow_tf32=False
)
openmp: Final = _library("openmp")
nnpack: Final = _library("nnpack")
xnnpack: Final = _library("xnnpack", enabled=False)
opt_einsum: Final = _library("opt_einsum", enabled=False, strategy=None)
cusparselt: Final = _library("cusparselt")
kleidiai: Final = _library("kleidiai")
miopen: Final = _library("miopen", immediate=False)
quantized: Final = _library("quantized", engine="none", supported_engines=["none"])
