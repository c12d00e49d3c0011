"""Timing of small pieces of code, under the names of ``torch.utils.benchmark``: `Timer`, `Measurement`, `Compare`,
`Fuzzer`.
"""

from __future__ import annotations

from .compare import Compare as Compare
from .fuzzer import FuzzedParameter as FuzzedParameter
from .fuzzer import FuzzedTensor as FuzzedTensor
from .fuzzer import Fuzzer as Fuzzer
from .fuzzer import ParameterAlias as ParameterAlias
from .measurement import Measurement as Measurement
from .measurement import TaskSpec as TaskSpec
from .measurement import ordered_unique as ordered_unique
from .measurement import select_unit as select_unit
from .measurement import trim_sigfig as trim_sigfig
from .measurement import unit_to_english as unit_to_english
from .timers import Language as Language
from .timers import Timer as Timer
from .timers import timer as timer

__all__ = [
    "Compare",
    "FuzzedParameter",
    "FuzzedTensor",
    "Fuzzer",
    "Language",
    "Measurement",
    "ParameterAlias",
    "TaskSpec",
    "Timer",
    "ordered_unique",
    "select_unit",
    "timer",
    "trim_sigfig",
    "unit_to_english",
]
