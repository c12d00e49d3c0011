"""Tunable operations, under ``torch.cuda.tunable``'s names: the server measures which way to multiply is the fastest.

Results are a session's own. Files of results are the client's: PyTorch's format, with validators that must agree before
results are taken over.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from telegrad._session import settings as _settings
from telegrad._session.current import current_session
from telegrad_protocol.errors import ArgumentError

_ENABLED, _TUNES, _DURATION, _ITERATIONS = range(4)
_filename = os.environ.get("PYTORCH_TUNABLEOP_FILENAME") or "tunableop_results.csv"
Result = tuple[str, str, str, float]


def _set(position: int, value: Any) -> None:
    settings = list(_settings.get("tunable"))
    settings[position] = value
    _settings.put("tunable", tuple(settings))


def enable(val: bool = True) -> None:
    """Use what was measured, and measure what is new where tuning is on; off at first."""
    _set(_ENABLED, _settings.require_bool("enable", val))


def is_enabled() -> bool:
    """Whether measured choices are used."""
    return bool(_settings.get("tunable")[_ENABLED])


def tuning_enable(val: bool = True) -> None:
    """Measure products that were not met before; on at first, but only while tunable operations are enabled."""
    _set(_TUNES, _settings.require_bool("tuning_enable", val))


def tuning_is_enabled() -> bool:
    """Whether products that were not met before are measured."""
    return bool(_settings.get("tunable")[_TUNES])


def set_max_tuning_duration(duration: int) -> None:
    """For how many milliseconds each way is measured; 0 does not limit."""
    _set(_DURATION, _count("set_max_tuning_duration", duration))


def get_max_tuning_duration() -> int:
    """For how many milliseconds each way is measured."""
    return int(_settings.get("tunable")[_DURATION])


def set_max_tuning_iterations(iterations: int) -> None:
    """How often each way is run to measure it; 0 does not limit."""
    _set(_ITERATIONS, _count("set_max_tuning_iterations", iterations))


def get_max_tuning_iterations() -> int:
    """How often each way is run to measure it."""
    return int(_settings.get("tunable")[_ITERATIONS])


def _count(name: str, value: int) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ArgumentError(f"{name}: expected an integer of 0 or more that fits into 64 bits, got {value!r}")
    return value


def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
    """The file that ``write_file`` and ``read_file`` use where they are given none."""
    global _filename
    path = Path(filename)
    _filename = str(path.with_name(f"{path.stem}0{path.suffix}")) if insert_device_ordinal else filename


def get_filename() -> str:
    """The file that ``write_file`` and ``read_file`` use where they are given none."""
    return _filename


def get_results() -> tuple[Result, ...]:
    """What the session has measured or read: operation, parameters, the way that was the fastest, milliseconds."""
    lines = current_session().query("tunable_results")
    return tuple([(operation, parameters, way, float(time)) for operation, parameters, way, time in lines])


def get_validators() -> tuple[tuple[str, str], ...]:
    """What results are only good for: versions of libraries, and the kind of GPU."""
    return tuple([(name, value) for name, value in current_session().query("tunable_validators")])


def write_file(filename: str | None = None) -> bool:
    """Write validators and results to a file; False where there are none."""
    results = get_results()
    if not results:
        return False
    lines = [f"Validator,{name},{value}" for name, value in get_validators()]
    lines += [f"{operation},{parameters},{way},{time:.6g}" for operation, parameters, way, time in results]
    Path(filename or _filename).write_text("\n".join(lines) + "\n")
    return True


def read_file(filename: str | None = None) -> bool:
    """Take over results from a file; False, and nothing changes, where it was written for something else."""
    validators, results = _parse(_text_of(Path(filename or _filename)))
    if validators != list(get_validators()):
        return False
    current_session().query("tunable_load", results)
    return True


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise ArgumentError(f"read_file: {str(path)!r} is not text") from None


def _parse(text: str) -> tuple[list[tuple[str, str]], list[list[str]]]:
    validators: list[tuple[str, str]] = []
    results: list[list[str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split(",", 2)
        if parts[0] == _VALIDATOR and len(parts) == 3:
            validators.append((parts[1], parts[2]))
        elif line.count(",") == 3:
            results.append(line.split(","))
        elif line.strip():
            raise ArgumentError(f"read_file: line {number} is neither a validator nor a result: {line!r:.60}")
    return validators, results


_VALIDATOR: Final = "Validator"
