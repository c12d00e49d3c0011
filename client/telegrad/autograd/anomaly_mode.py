"""Anomaly mode: errors of passes name the program's line, and gradients that are not numbers are refused."""

from __future__ import annotations

import warnings

from telegrad._session.grad_mode import ModeBlock

from ._anomalies import anomalies, switch

__all__ = ["detect_anomaly", "set_detect_anomaly"]


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
        switch(bool(mode), bool(mode and check_nan))

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
