"""TELEGRAD_ALLOC_CONF: the allocator's options in the grammar and with the names of PYTORCH_CUDA_ALLOC_CONF.

Where it is not set, PyTorch's own variables are read, the newer one first.

    options = option {"," option}      option = name ":" value
    value   = number | "True" | "False" | word | "[" size ":" number {"," size ":" number} "]"

Blanks mean nothing. What is unknown, malformed or out of range is refused with its name. Knows text only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from server.allocator.core.config import ROUNDUP_INTERVALS, AllocatorConfig
from server.allocator.core.sizes import MIB
from telegrad_protocol.errors import ConfigurationError
from telegrad_protocol.pytorch_variables import ALLOCATOR_VARIABLES

VARIABLE = "TELEGRAD_ALLOC_CONF"
VARIABLES = (VARIABLE, *ALLOCATOR_VARIABLES)
_OPTION = re.compile(r"(?P<name>[^:,\[\]]+):(?P<value>\[[^\[\]]*\]|[^:,\[\]]+)(?:,|$)")


def options_of_environment(environ: Mapping[str, str] = os.environ) -> AllocatorConfig:
    """The options that this process was started with; ConfigurationError naming the variable and what is wrong."""
    variable = next((name for name in VARIABLES if environ.get(name)), VARIABLE)
    return parse_options(environ.get(variable, ""), variable)


def parse_options(text: str, variable: str = VARIABLE) -> AllocatorConfig:
    """Read the options; raises ConfigurationError naming the ``variable`` and what is wrong."""
    chosen: dict[str, Any] = {}
    for name, value in _split(text, variable):
        if name not in _OPTIONS:
            raise ConfigurationError(f"{variable}: unknown option {name!r}, known are {', '.join(sorted(_OPTIONS))}")
        field, read = _OPTIONS[name]
        try:
            chosen[field] = read(value)
        except ValueError as wrong:
            raise ConfigurationError(f"{variable}: {name}:{value}: {wrong}") from None
    # What may only be left as it is changes nothing.
    chosen.pop("", None)
    return AllocatorConfig(**chosen)


def _split(text: str, variable: str) -> Iterator[tuple[str, str]]:
    text = re.sub(r"\s", "", text)
    position = 0
    while position < len(text):
        option = _OPTION.match(text, position)
        if option is None:
            raise ConfigurationError(f"{variable}: expected name:value at {text[position:]!r}")
        yield option["name"], option["value"]
        position = option.end()


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("not a whole number")
    return int(text)


def _bytes_of_mb(at_least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if _whole(text) < at_least:
            raise ValueError(f"must be at least {at_least}")
        return _whole(text) * MIB

    return read


def _truth(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError("must be True or False")
    return text == "True"


def _fraction(upper_included: bool) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not (0.0 < value < 1.0 or (upper_included and value == 1.0)):
            raise ValueError(f"must lie in (0, 1{']' if upper_included else ')'}")
        return value

    return read


def _native(text: str) -> None:
    if text != "native":
        raise ValueError("there is only the backend native")


def _power_of_two(text: str) -> int:
    value = _whole(text)
    if value & (value - 1) or value == 0:
        raise ValueError("must be a power of 2")
    return value


def _divisions(text: str) -> tuple[int, ...]:
    if not text.startswith("["):
        return (_power_of_two(text),) * ROUNDUP_INTERVALS
    divisions = [0] * ROUNDUP_INTERVALS
    first, last = True, 0
    for entry in text[1:-1].split(","):
        size, separator, count_text = entry.partition(":")
        if not separator:
            raise ValueError(f"expected size:divisions, not {entry!r}")
        count = 0 if count_text == "0" else _power_of_two(count_text)
        if size == ">":
            divisions[last + 1 :] = [count] * (ROUNDUP_INTERVALS - last - 1)
            continue
        last = min(_power_of_two(size).bit_length() - 1, ROUNDUP_INTERVALS - 1)
        start = 0 if first else last
        divisions[start : last + 1] = [count] * (last + 1 - start)
        first = False
    return tuple(divisions)


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "backend": ("", _native),
    # PyTorch's options of locks and threads: one thread allocates here, and waits for nobody.
    "release_lock_on_cudamalloc": ("", _truth),
    "pinned_use_background_threads": ("", _truth),
    "pinned_num_register_threads": ("", _power_of_two),
    "graph_capture_record_stream_reuse": ("", _truth),
    "max_split_size_mb": ("max_split_size", _bytes_of_mb(20)),
    "max_non_split_rounding_mb": ("max_non_split_rounding", _bytes_of_mb(20)),
    "roundup_power2_divisions": ("roundup_power2_divisions", _divisions),
    "garbage_collection_threshold": ("garbage_collection_threshold", _fraction(upper_included=False)),
    "per_process_memory_fraction": ("per_process_memory_fraction", _fraction(upper_included=True)),
    "expandable_segments": ("expandable_segments", _truth),
    "pinned_use_cuda_host_register": ("pinned_use_cuda_host_register", _truth),
    "pinned_max_round_threshold_mb": ("pinned_max_round_threshold", _bytes_of_mb(0)),
    "pinned_max_cached_size_mb": ("pinned_max_cached_size", _bytes_of_mb(0)),
}
