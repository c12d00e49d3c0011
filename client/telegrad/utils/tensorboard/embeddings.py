"""The files of TensorBoard's projector: points, what is known of them, and a picture of each."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from telegrad._ops.operands.asserted_errors import AssertedArgumentError

from .arrays import array_of, bytes_of

CONFIG = "projector_config.pbtxt"


def write_embedding(
    folder: Path, tag: str, step: int, mat: Any, metadata: Any, label_img: Any, metadata_header: Any
) -> None:
    """Write points into a folder of their own, and into the projector's list.

    Raises ArgumentError where there are not as many labels or pictures as points.
    """
    points = array_of(mat)
    if points.ndim != 2:
        raise AssertedArgumentError("mat should be 2D, where mat.size(0) is the number of data points")
    name = f"{str(step).zfill(5)}/{_encoded(tag)}"
    own = folder / name
    own.mkdir(parents=True, exist_ok=True)
    lines = [f'tensor_name: "{tag}:{str(step).zfill(5)}"', f'tensor_path: "{name}/tensors.tsv"']
    if metadata is not None:
        _check_count("labels", metadata, points)
        _write_metadata(own / "metadata.tsv", metadata, metadata_header)
        lines.append(f'metadata_path: "{name}/metadata.tsv"')
    if label_img is not None:
        _check_count("images", label_img, points)
        height, width = _write_sprite(own / "sprite.png", array_of(label_img))
        sizes = "".join(f"    single_image_dim: {size}\n" for size in (width, height))
        lines.append(f'sprite {{\n    image_path: "{name}/sprite.png"\n{sizes}  }}')
    _write_rows(own / "tensors.tsv", points)
    with (folder / CONFIG).open("a") as config:
        config.write("embeddings {\n  " + "\n  ".join(lines) + "\n}\n")


def _encoded(tag: str) -> str:
    """Return a tag as the name of a folder."""
    return tag.replace("%", f"%{ord('%'):02x}").replace("/", f"%{ord('/'):02x}").replace("\\", f"%{ord(chr(92)):02x}")


def _check_count(what: str, given: Any, points: np.ndarray[Any, Any]) -> None:
    if len(given) != len(points):
        raise AssertedArgumentError(f"#{what} should equal with #data points: {len(given)} and {len(points)}")


def _write_rows(path: Path, rows: np.ndarray[Any, Any]) -> None:
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows.tolist()))


def _write_metadata(path: Path, metadata: Any, header: Any) -> None:
    rows = [header, *metadata] if header else metadata
    texts = ["\t".join(map(str, row)) if header else str(row) for row in rows]
    path.write_text("".join(f"{text}\n" for text in texts))


def _write_sprite(path: Path, pictures: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Write the pictures, given as batch, channels, height and width, into a square grid; return height and width."""
    from PIL import Image

    count, channels, height, width = pictures.shape
    side = math.ceil(math.sqrt(count))
    grid = np.zeros((side * height, side * width, channels), pictures.dtype)
    for place, picture in enumerate(pictures):
        top, left = place // side * height, place % side * width
        grid[top : top + height, left : left + width] = picture.transpose(1, 2, 0)
    shown = bytes_of(grid)
    Image.fromarray(shown if channels > 1 else shown[..., 0]).save(path)
    return height, width
