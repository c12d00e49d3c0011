"""Optimizers: a few instructions per step, however many parameters there are.

What few programs use is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import lr_scheduler
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .sgd import SGD

if TYPE_CHECKING:
    from . import swa_utils as swa_utils
    from ._states.swapping import swap_in_optimizer_params_and_state
    from .adadelta import Adadelta
    from .adafactor import Adafactor
    from .adagrad import Adagrad
    from .adamax import Adamax
    from .asgd import ASGD
    from .lbfgs import LBFGS
    from .muon import Muon
    from .nadam import NAdam
    from .radam import RAdam
    from .rmsprop import RMSprop
    from .rprop import Rprop
    from .sparse_adam import SparseAdam

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam",
    "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler",
    "swa_utils", "swap_in_optimizer_params_and_state",
]  # fmt: skip
_LATER = {
    "SparseAdam": "sparse_adam", "swa_utils": "swa_utils", "swap_in_optimizer_params_and_state": "_states.swapping",
} | {
    name: name.lower()
    for name in (
        "ASGD", "LBFGS", "Adadelta", "Adafactor", "Adagrad", "Adamax", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop",
    )
}  # fmt: skip
"""Names and the files that have them; a name that is a file's own stands for the file."""


if not TYPE_CHECKING:  # type checkers know the names, and tell of unknown ones

    def __getattr__(name: str) -> Any:
        file = _LATER.get(name, name if name in _LATER.values() else None)
        if file is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"{__name__}.{file}")
        globals()[name] = value = module if file == name else getattr(module, name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
