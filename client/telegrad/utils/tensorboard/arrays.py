"""What programs give to a writer, as arrays: numbers, tensors, and pictures in any order of their dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from telegrad._ops.operands.asserted_errors import AssertedArgumentError
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError


def array_of(value: Any) -> np.ndarray[Any, Any]:
    """Return a number, a list, an array or a tensor as an array of at least one dimension."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype.name == "bfloat16" else value).numpy()
    if isinstance(value, str):
        raise ArgumentTypeError(f"tensorboard: expected numbers, got the text {value!r}")
    array: np.ndarray[Any, Any] = np.atleast_1d(np.asarray(value))
    return array


def number_of(value: Any) -> float:
    """Return the only element of a value. Raises ArgumentError where it has several."""
    array = array_of(value)
    if array.size != 1:
        raise AssertedArgumentError(f"tensorboard: a scalar must have one element, got the shape {array.shape}")
    return float(array.reshape(()))


def picture_of(value: Any, dataformats: str) -> np.ndarray[Any, Any]:
    """Return a picture, or a grid of those of a batch, with the dimensions height, width and three channels or more.

    ``dataformats`` names the dimensions, such as ``CHW``; those of numbers of floating point reach from 0 to 1.
    """
    array, order = array_of(value), dataformats.upper()
    if len(set(order)) != len(order) or len(order) != array.ndim:
        raise AssertedArgumentError(
            f"tensorboard: the dimensions {dataformats!r} of a picture do not fit its shape {array.shape}"
        )
    if "N" in order:
        batch = _with_channels(array.transpose([order.index(name) for name in "NHWC" if name in order]), 4)
        return _grid(batch)
    return _with_channels(array.transpose([order.index(name) for name in "HWC" if name in order]), 3)


def _with_channels(array: np.ndarray[Any, Any], ndim: int) -> np.ndarray[Any, Any]:
    """Return pictures of one channel with three equal ones."""
    array = array if array.ndim == ndim else array[..., None]
    return np.repeat(array, 3, axis=-1) if array.shape[-1] == 1 else array


def _grid(batch: np.ndarray[Any, Any], columns: int = 8) -> np.ndarray[Any, Any]:
    """Return the pictures of a batch side by side, as many in a row as there are columns."""
    count, height, width, channels = batch.shape
    columns = min(count, columns)
    rows = -(-count // columns)
    grid = np.zeros((rows * height, columns * width, channels), batch.dtype)
    for place, picture in enumerate(batch):
        top, left = place // columns * height, place % columns * width
        grid[top : top + height, left : left + width] = picture
    return grid


def bytes_of(picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a picture with elements from 0 to 255."""
    scaled = picture if picture.dtype == np.uint8 else picture.astype(np.float32) * 255
    return scaled.clip(0, 255).astype(np.uint8)


def video_frames(value: Any) -> np.ndarray[Any, Any]:
    """Return the frames of a batch of videos, given as batch, time, channels, height, width, side by side in a grid."""
    array = array_of(value)
    if array.ndim != 5:
        raise ArgumentError(f"tensorboard: a video has the dimensions N, T, C, H, W, got the shape {array.shape}")
    return np.stack([_grid(array[:, time].transpose(0, 2, 3, 1)) for time in range(array.shape[1])])
