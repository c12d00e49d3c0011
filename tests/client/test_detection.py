"""Operators for boxes in pictures, which take the place of a compiled library's: held against loops over elements."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LIBRARY = b"\x7fELF\x00boxes::nms(Tensor dets\x00boxes::roi_align\x00"


@pytest.fixture
def boxes(tg: Any, tmp_path: Path) -> Any:
    path = tmp_path / "boxes.so"
    path.write_bytes(LIBRARY)
    tg.ops.load_library(path)
    assert str(path) in tg.ops.loaded_libraries
    return tg.ops.boxes


def _overlap(a: Any, b: Any) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def test_boxes_that_overlap_a_better_one_are_left_out(tg: Any, boxes: Any, seed: int) -> None:
    draw = np.random.default_rng(seed)
    corners = draw.random((60, 2)) * 50
    given = np.concatenate([corners, corners + draw.random((60, 2)) * 30 + 1], 1).astype(np.float32)
    scores = draw.random(60).astype(np.float32)
    kept: list[int] = []
    for index in np.argsort(-scores, kind="stable"):
        if all(_overlap(given[index], given[other]) <= 0.4 for other in kept):
            kept.append(int(index))
    assert boxes.nms(tg.from_numpy(given), tg.from_numpy(scores), 0.4).tolist() == kept
    assert boxes.nms(tg.zeros(0, 4), tg.zeros(0), 0.4).tolist() == []


def _pixel(picture: Any, y: float, x: float) -> Any:
    height, width = picture.shape[1:]
    if y < -1 or y > height or x < -1 or x > width:
        return np.zeros(len(picture))
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper = picture[:, top, left] * (1 - x + left) + picture[:, top, right] * (x - left)
    lower = picture[:, bottom, left] * (1 - x + left) + picture[:, bottom, right] * (x - left)
    return upper * (1 - y + top) + lower * (y - top)


def _cut(pictures: Any, roi: Any, scale: float, size: tuple[int, int], ratio: int, aligned: bool) -> Any:
    x1, y1, x2, y2 = roi[1:] * scale - (0.5 if aligned else 0)
    height, width = (y2 - y1, x2 - x1) if aligned else (max(y2 - y1, 1), max(x2 - x1, 1))
    bin_height, bin_width = height / size[0], width / size[1]
    rows, columns = (ratio, ratio) if ratio > 0 else (math.ceil(bin_height), math.ceil(bin_width))
    cut = np.zeros((pictures.shape[1], *size))
    for p, q, i, j in np.ndindex(*size, rows, columns):
        y = y1 + (p + (i + 0.5) / rows) * bin_height
        x = x1 + (q + (j + 0.5) / columns) * bin_width
        cut[:, p, q] += _pixel(pictures[int(roi[0])], y, x) / (rows * columns)
    return cut


@pytest.mark.parametrize(("ratio", "aligned"), [(2, True), (0, False), (-1, True)])
def test_regions_are_means_of_bilinear_samples(tg: Any, boxes: Any, seed: int, ratio: int, aligned: bool) -> None:
    draw = np.random.default_rng(seed)
    pictures = draw.standard_normal((2, 3, 8, 9)).astype(np.float32)
    corners = draw.random((7, 2)) * 14 - 3
    rois = np.concatenate([draw.integers(0, 2, (7, 1)), corners, corners + draw.random((7, 2)) * 12 + 0.1], 1)
    rois = rois.astype(np.float32)
    given = tg.from_numpy(pictures).requires_grad_()
    cut = boxes.roi_align(given, tg.from_numpy(rois), 0.7, 3, 2, ratio, aligned)
    expected = np.stack([_cut(pictures, roi, 0.7, (3, 2), ratio, aligned) for roi in rois.astype(np.float64)])
    np.testing.assert_allclose(cut.detach().numpy(), expected, rtol=1e-4, atol=1e-4)
    cut.sum().backward()
    bumped = pictures.astype(np.float64).copy()
    bumped[1, 0, 3, 4] += 1
    more = sum(_cut(bumped, roi, 0.7, (3, 2), ratio, aligned).sum() for roi in rois.astype(np.float64)) - expected.sum()
    assert abs(given.grad[1, 0, 3, 4].item() - more) < 1e-3
    assert boxes.roi_align(given, tg.zeros(0, 5), 1.0, 3, 2, 2, True).shape == (0, 3, 3, 2)


def test_other_operators_and_libraries_are_refused_in_words(tg: Any, boxes: Any, tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match=r"boxes::roi_pool: .*torch\.library\.impl gives it one"):
        boxes.roi_pool(tg.ones(1, 1, 4, 4), tg.ones(1, 5), 1.0, 2, 2)
    (tmp_path / "other.so").write_bytes(b"\x7fELF other::nms")
    for path in (tmp_path / "other.so", tmp_path / "absent.so"):
        with pytest.raises(OSError, match="Could not load this library"):
            tg.ops.load_library(path)
