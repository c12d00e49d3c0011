"""Gradient scaling for mixed precision: finding infinities and NaN, unscaling, and updating the scale.

The host reads no value of a device here: the flag and the scale stay in device memory.
"""

from __future__ import annotations

import numpy as np

from server.engine.registry import implements
from telegrad_protocol.ops import amp as ops


@implements(ops._amp_foreach_non_finite_check_and_unscale_, movement=True)
def _amp_foreach_non_finite_check_and_unscale_(xp, tensors, found_inf, inv_scale):
    factor = None if inv_scale is None else inv_scale.reshape(())
    flag = found_inf.reshape(())
    for tensor in tensors:
        wide = tensor.astype(np.float32) if tensor.itemsize == 2 else tensor
        xp.maximum(flag, xp.logical_not(xp.isfinite(wide).all()), out=flag)
        if factor is not None:
            xp.multiply(wide, factor, out=wide)
            if wide is not tensor:
                tensor[...] = wide


@implements(ops._amp_update_scale_, movement=True)
def _amp_update_scale_(
    xp, scale, growth_tracker, found_inf, scale_growth_factor, scale_backoff_factor, growth_interval
):
    scale, tracker, overflowed = scale.reshape(()), growth_tracker.reshape(()), found_inf.reshape(()) != 0
    counted = tracker + 1
    grown = scale * np.float32(scale_growth_factor)
    has_grown = (counted == growth_interval) & ~overflowed
    tracker[...] = xp.where(overflowed | has_grown, 0, counted)
    kept = xp.where(has_grown & xp.isfinite(grown), grown, scale)
    scale[...] = xp.where(overflowed, scale * np.float32(scale_backoff_factor), kept)
