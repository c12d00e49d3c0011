"""Anomaly mode: errors of passes name the node and the line of the program, and gradients with NaN are refused."""

from __future__ import annotations

import linecache
import re
import warnings
from collections.abc import Sequence
from typing import Any, Final

from telegrad._ops.functions import function
from telegrad._session import settings
from telegrad._session.grad_mode import ModeBlock
from telegrad._session.own_code import depth_of_program
from telegrad._session.session import ClientSession
from telegrad_protocol.errors import AutogradError, TelegradError

__all__ = ["detect_anomaly", "set_detect_anomaly"]
_DETECTED: Final = re.compile(r"\n(Error detected in \S+): (.*)$")
_LINE: Final = re.compile(r"(.*):(\d+) in (.*)")


class _Anomalies:
    """Whether anomaly mode is on, and whether passes look for NaN."""

    is_enabled = False
    check_nan = True


anomalies = _Anomalies()


def switch(is_enabled: bool, check_nan: bool) -> None:
    """Switch the mode, from the next instruction of every session on."""
    anomalies.is_enabled, anomalies.check_nan = is_enabled, check_nan
    settings.put("anomaly", 2 if is_enabled and check_nan else int(is_enabled))


class explained:
    """Waits for the pass of the block, in anomaly mode; where a node fails, warns with the line that has made it."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, at: Any) -> None:
        if error is None and anomalies.is_enabled:
            try:
                self._session.synchronize()
            except TelegradError as failed:
                _explain(failed)
                raise
        elif isinstance(error, TelegradError):
            _explain(error)


def _explain(error: TelegradError) -> None:
    """Warn with the line of the program that has made the node that an error names, and leave it out there."""
    detected = _DETECTED.search(error.message)
    if detected is not None:
        error.args = (error.message[: detected.start()], *error.args[1:])
        warnings.warn(
            f"{detected[1]}. Traceback of forward call that caused the error:\n{_as_traceback(detected[2])}",
            stacklevel=depth_of_program(),
        )


def wait_explained(session: ClientSession) -> None:
    """Wait for a pass that was submitted; where a node fails, warn likewise."""
    with explained(session):
        pass


def _as_traceback(line: str) -> str:
    """Return a line as tracebacks show it, with its text where this machine has it."""
    match = _LINE.fullmatch(line)
    if match is None:
        return f"  {line}\n"
    text = linecache.getline(match[1], int(match[2])).strip()
    shown = f"    {text}\n" if text else ""
    return f'  File "{match[1]}", line {match[2]}, in {match[3]}\n{shown}'


def refuse_nan(name: str, gradients: Sequence[Any]) -> None:
    """Raise AutogradError where a function of the program, of this name, has returned NaN; waits for its results."""
    if anomalies.is_enabled and anomalies.check_nan:
        for number, gradient in enumerate(gradients):
            if gradient is not None and function("isnan")(gradient).any().item():
                raise AutogradError(f"Function '{name}' returned nan values in its {number}th output.")


class detect_anomaly(ModeBlock):
    """Name the node at which a pass fails, and refuse NaN, in this block.

    Where a node computes a gradient with NaN in it, unless ``check_nan`` is false, the pass raises AutogradError. A
    warning shows the line that has called the operation, if that was in the block too. Every pass waits.
    """

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
            "debugging.",
            stacklevel=2,
        )

    def again(self) -> detect_anomaly:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return detect_anomaly(self.check_nan)

    def __enter__(self) -> None:
        self.before = anomalies.is_enabled, anomalies.check_nan
        switch(True, self.check_nan)

    def __exit__(self, *_: object) -> None:
        switch(*self.before)


class set_detect_anomaly:
    """Switch the mode on or off; at once, and until the end of the block if used as one."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.before = anomalies.is_enabled, anomalies.check_nan
        switch(bool(mode), bool(check_nan))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        switch(*self.before)


def is_anomaly_enabled() -> bool:
    """Tell whether the mode is on."""
    return anomalies.is_enabled


def is_anomaly_check_nan_enabled() -> bool:
    """Tell whether the mode looks for NaN."""
    return anomalies.check_nan
