"""Layers, in one file per family; the files have PyTorch's names.

This package re-exports the names in ``__all__`` of every file in it, so a new layer, or a file of new layers, is found
without being listed here. What layers share that is no layer lives one folder up, in ``telegrad.nn``. The stub beside
this file tells type checkers the same; ``docs/generate.py`` writes it.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from telegrad.nn._lazy import LazyModuleMixin as LazyModuleMixin

__all__: list[str] = []

for _info in iter_modules(__path__):
    _file = import_module(f"{__name__}.{_info.name}")
    globals().update({name: getattr(_file, name) for name in _file.__all__})
    __all__ += _file.__all__

# what files of PyTorch have that are parts of others here
from .instancenorm import _InstanceNorm as _InstanceNorm  # noqa: E402
from .utils import _ntuple as _ntuple  # noqa: E402
from .utils import _pair as _pair  # noqa: E402
from .utils import _quadruple as _quadruple  # noqa: E402
from .utils import _reverse_repeat_tuple as _reverse_repeat_tuple  # noqa: E402
from .utils import _single as _single  # noqa: E402
from .utils import _triple as _triple  # noqa: E402
