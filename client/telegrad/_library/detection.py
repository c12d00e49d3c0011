"""Operators for boxes in pictures, as published compiled libraries define them in their namespace.

Such a library cannot be loaded, since its kernels are for PyTorch's process. `define_in` gives a namespace these
operators instead. Boxes are read and looked at on this machine: one round trip for each call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final, NoReturn

import numpy as np

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import float32, int64
from telegrad_protocol.errors import NotSupportedError

from .libraries import KEPT, Library

tg: Any = import_module("telegrad")
_ROIS_AT_ONCE: Final = 64
"""So many regions are cut out of a picture at once, which bounds the memory that this needs."""
_NAMED: Final = re.compile(rb"\b([A-Za-z_]\w{0,63})::nms\b")
"""How a compiled library names the operator that removes boxes."""
_REFUSED: Final = (
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio) -> (Tensor, Tensor)",
    "ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, "
    "int rois_zero_point, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, "
    "bool aligned) -> Tensor",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
    "_deform_conv2d_backward(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor",
    "_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, "
    "SymInt pooled_height, SymInt pooled_width, int sampling_ratio, SymInt batch_size, SymInt channels, "
    "SymInt height, SymInt width) -> Tensor",
    "_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, "
    "SymInt pooled_height, SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width) "
    "-> Tensor",
)


def nms(dets: Any, scores: Any, iou_threshold: float) -> Tensor:
    """Return the indices of boxes (x1, y1, x2, y2) by falling score, without those that overlap a better one more."""
    boxes, order = dets.detach().to(float32).numpy(), np.argsort(-scores.detach().to(float32).numpy(), kind="stable")
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(int(best))
        corner = np.maximum(boxes[best, :2], boxes[order, :2])
        sides = np.clip(np.minimum(boxes[best, 2:], boxes[order, 2:]) - corner, 0, None)
        shared = sides[:, 0] * sides[:, 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            order = order[~(shared / (areas[best] + areas[order] - shared) > iou_threshold)]
    indices: Tensor = tg.tensor(kept, dtype=int64, device=dets.device)
    return indices


def _weights(begin: Any, end: Any, bins: int, size: int, sampling_ratio: int) -> Any:
    """Return how much each pixel of an axis counts in each bin of each region: ``[regions, bins, size]``."""
    length = (end - begin) / bins
    samples = np.full(len(begin), sampling_ratio) if sampling_ratio > 0 else np.ceil(length).astype(int)
    weights, pixels = np.zeros((len(begin), bins, size), np.float32), np.arange(size, dtype=np.float32)
    for sample in range(max(samples, default=0)):
        at = begin[:, None] + length[:, None] * (np.arange(bins) + ((sample + 0.5) / np.maximum(samples, 1))[:, None])
        counts = (at >= -1) & (at <= size) & (sample < samples)[:, None]
        distance = np.abs(np.clip(at, 0, size - 1)[..., None] - pixels)
        weights += np.clip(1 - distance, 0, None) * counts[..., None]
    return weights / np.maximum(samples, 1)[:, None, None].astype(np.float32)


def roi_align(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int,
    aligned: bool,
) -> Tensor:  # fmt: skip
    """Return the means of bilinear samples in the bins of regions (picture, x1, y1, x2, y2): ``[K, C, height, width]``.

    Differentiable by ``input``. Sampling is separable, so that each region is two products with weights of its axes.
    """
    size = (input.shape[2], input.shape[3])
    parts, places = [input.new_zeros((0, input.shape[1], pooled_height, pooled_width))], []
    for picture, group, down, across in _groups(
        input, rois, spatial_scale, (pooled_height, pooled_width), size, sampling_ratio, aligned
    ):
        parts.append(tg.einsum("kph,chw,kqw->kcpq", down, input[picture], across))
        places.append(group)
    order = np.argsort(np.concatenate(places)) if places else np.zeros(0, int)
    cut: Tensor = tg.cat(parts)[tg.from_numpy(order).to(input.device)]
    return cut


def roi_align_backward(
    grad: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int, batch_size: int, channels: int,
    height: int, width: int, sampling_ratio: int, aligned: bool,
) -> Tensor:  # fmt: skip
    """Return the gradient of the pictures that regions were cut out of."""
    pictures = grad.new_zeros((batch_size, channels, height, width))
    bins = (pooled_height, pooled_width)
    for picture, group, down, across in _groups(
        grad, rois, spatial_scale, bins, (height, width), sampling_ratio, aligned
    ):
        own = grad[tg.from_numpy(group).to(grad.device)]
        pictures[picture] += tg.einsum("kph,kcpq,kqw->chw", down, own, across)
    return pictures  # type: ignore[no-any-return]


def _groups(
    like: Any, rois: Any, spatial_scale: float, bins: tuple[int, int], size: tuple[int, int], sampling_ratio: int,
    aligned: bool,
) -> Iterator[tuple[int, Any, Any, Any]]:  # fmt: skip
    """Yield groups of regions of one picture each: its index, theirs, and their weights of rows and of columns."""
    given = rois.detach().to(float32).numpy()
    box = given[:, 1:] * spatial_scale - (0.5 if aligned else 0.0)
    box[:, 2:] = box[:, 2:] if aligned else np.maximum(box[:, 2:], box[:, :2] + 1)
    rows = _weights(box[:, 1], box[:, 3], bins[0], size[0], sampling_ratio)
    columns = _weights(box[:, 0], box[:, 2], bins[1], size[1], sampling_ratio)
    for picture in np.unique(given[:, 0]).astype(int).tolist():
        own = np.flatnonzero(given[:, 0] == picture)
        for group in np.split(own, range(_ROIS_AT_ONCE, len(own), _ROIS_AT_ONCE)):
            down, across = (tg.from_numpy(axis[group]).to(like.device, like.dtype) for axis in (rows, columns))
            yield picture, group, down, across


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotSupportedError(
            f"{name}: the operator's kernel is compiled for PyTorch's process; torch.library.impl gives it one in "
            "Python, and roi_align, nms and grid_sample are there"
        )

    return refuse


def define_in(namespace: str) -> None:
    """Define the operators in a namespace; the second time does nothing."""
    if any(library.ns == namespace and library.kind == "FRAGMENT" for library in KEPT):
        return
    library = Library(namespace, "FRAGMENT")
    defined: dict[str, Callable[..., Any]] = {
        "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": nms,
        "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor": roi_align,
        "_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
        "SymInt batch_size, SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) "
        "-> Tensor": roi_align_backward,
        "_cuda_version() -> int": lambda: -1,
        **{schema: _refusing(f"{namespace}::{schema.partition('(')[0]}") for schema in _REFUSED},
    }
    for schema, function in defined.items():
        library.define(schema)
        library.impl(schema.partition("(")[0], function, "CompositeImplicitAutograd")
    KEPT.append(library)


def namespace_in(content: bytes) -> str | None:
    """Return the namespace in which a compiled library has these operators; None if it does not have them."""
    namespaces = {name for name in _NAMED.findall(content) if name + b"::roi_align" in content}
    return min(namespaces).decode() if namespaces else None
