"""The records of TensorBoard's files, under the names of ``torch.utils.tensorboard.summary``."""

from __future__ import annotations

import io
import json
import wave
from typing import Any

import numpy as np
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData
from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

from telegrad_protocol.errors import ArgumentError

from .arrays import array_of, bytes_of, number_of, picture_of, video_frames
from .histograms import histogram_of
from .hyperparameters import hparams

__all__ = [
    "audio", "custom_scalars", "histogram", "histogram_raw", "hparams", "image", "image_boxes", "mesh", "pr_curve",
    "pr_curve_raw", "scalar", "tensor_proto", "text", "video",
]  # fmt: skip
_TYPES = {
    "float16": "DT_HALF", "float32": "DT_FLOAT", "float64": "DT_DOUBLE", "int8": "DT_INT8", "uint8": "DT_UINT8",
    "int16": "DT_INT16", "int32": "DT_INT32", "int64": "DT_INT64", "bool": "DT_BOOL", "complex64": "DT_COMPLEX64",
    "complex128": "DT_COMPLEX128",
}  # fmt: skip


def _metadata(plugin: str, content: bytes = b"") -> Any:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin, content=content))


def _shape(sizes: Any) -> Any:
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in sizes])


def scalar(
    name: str, tensor: Any, collections: Any = None, new_style: bool = False, double_precision: bool = False
) -> Any:
    """Return the record of a number: of single precision, or of the style of TensorFlow 2."""
    value = number_of(tensor)
    if not new_style:
        return Summary(value=[Summary.Value(tag=name, simple_value=value)])
    proto = TensorProto(double_val=[value], dtype="DT_DOUBLE") if double_precision else TensorProto(
        float_val=[value], dtype="DT_FLOAT"
    )  # fmt: skip
    return Summary(value=[Summary.Value(tag=name, tensor=proto, metadata=_metadata("scalars"))])


def tensor_proto(tag: str, tensor: Any) -> Any:
    """Return the record of all elements of a tensor."""
    array = array_of(tensor) if tensor.ndim else array_of(tensor).reshape(())
    if array.dtype.name not in _TYPES:
        raise ArgumentError(f"{tag} has an unsupported tensor dtype {tensor.dtype}")
    proto = TensorProto(
        dtype=_TYPES[array.dtype.name], tensor_shape=_shape(array.shape), tensor_content=array.tobytes()
    )
    return Summary(value=[Summary.Value(tag=tag, tensor=proto, metadata=_metadata("tensor"))])


def histogram(name: str, values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """Return the record of how the elements of a tensor are distributed."""
    return Summary(value=[Summary.Value(tag=name, histo=histogram_of(array_of(values), bins, max_bins))])


def histogram_raw(
    name: str, min: Any, max: Any, num: Any, sum: Any, sum_squares: Any, bucket_limits: Any, bucket_counts: Any
) -> Any:
    """Return the record of a distribution that the program has counted."""
    histo = HistogramProto(
        min=min, max=max, num=num, sum=sum, sum_squares=sum_squares, bucket_limit=bucket_limits, bucket=bucket_counts
    )
    return Summary(value=[Summary.Value(tag=name, histo=histo)])


def _encoded(picture: np.ndarray[Any, Any], rescale: float = 1) -> Any:
    """Return an array of a picture as PNG."""
    from PIL import Image

    height, width, channels = picture.shape
    image = Image.fromarray(picture)
    if rescale != 1:
        image = image.resize((int(width * rescale), int(height * rescale)))
    file = io.BytesIO()
    image.save(file, format="PNG")
    return Summary.Image(
        height=image.height, width=image.width, colorspace=channels, encoded_image_string=file.getvalue()
    )


def image(tag: str, tensor: Any, rescale: float = 1, dataformats: str = "NCHW") -> Any:
    """Return the record of a picture, or of those of a batch side by side."""
    picture = bytes_of(picture_of(tensor, dataformats))
    return Summary(value=[Summary.Value(tag=tag, image=_encoded(picture, rescale))])


def image_boxes(
    tag: str, tensor_image: Any, tensor_boxes: Any, rescale: float = 1, dataformats: str = "CHW", labels: Any = None
) -> Any:
    """Return the record of a picture with rectangles in it, each given by its left, upper, right and lower edge."""
    from PIL import Image, ImageDraw

    drawn = Image.fromarray(bytes_of(picture_of(tensor_image, dataformats)))
    draw = ImageDraw.Draw(drawn)
    for place, (left, top, right, bottom) in enumerate(array_of(tensor_boxes).reshape(-1, 4).tolist()):
        draw.rectangle((left, top, right, bottom), outline="red", width=2)
        if labels:
            draw.text((left + 2, top + 2), labels[place], fill="red")
    return Summary(value=[Summary.Value(tag=tag, image=_encoded(np.asarray(drawn), rescale))])


def video(tag: str, tensor: Any, fps: float = 4) -> Any:
    """Return the record of videos side by side, as an animated GIF."""
    from PIL import Image

    frames = bytes_of(video_frames(tensor))
    channels = frames.shape[-1]
    images = [Image.fromarray(frame if channels > 1 else frame[..., 0]) for frame in frames]
    file = io.BytesIO()
    images[0].save(
        file, format="GIF", save_all=True, append_images=images[1:], duration=max(int(1000 / fps), 1), loop=0
    )
    height, width = frames.shape[1:3]
    made = Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue())
    return Summary(value=[Summary.Value(tag=tag, image=made)])


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> Any:
    """Return the record of a sound between -1 and 1, as a WAV file of one channel with 16 bits."""
    samples = array_of(tensor).squeeze()
    if samples.ndim != 1:
        raise ArgumentError(f"tensorboard: a sound has one dimension, got the shape {samples.shape}")
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(sample_rate)
        written.writeframes((samples.clip(-1, 1) * np.iinfo(np.int16).max).astype("<i2").tobytes())
    made = Summary.Audio(
        sample_rate=sample_rate,
        num_channels=1,
        length_frames=len(samples),
        encoded_audio_string=file.getvalue(),
        content_type="audio/wav",
    )
    return Summary(value=[Summary.Value(tag=tag, audio=made)])


def text(tag: str, text: str) -> Any:
    """Return the summary that shows a text, as Markdown, under its tag."""
    proto = TensorProto(dtype="DT_STRING", string_val=[text.encode(errors="replace")], tensor_shape=_shape((1,)))
    metadata = _metadata("text", TextPluginData(version=0).SerializeToString())
    return Summary(value=[Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=proto)])


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None) -> Any:
    """Return the record of precision and recall at thresholds of a prediction."""
    data = _curve(array_of(labels).reshape(-1), array_of(predictions).reshape(-1), min(num_thresholds, 127), weights)
    tp, fp, tn, fn, precision, recall = data
    return pr_curve_raw(tag, tp, fp, tn, fn, precision, recall, num_thresholds)


def _curve(labels: Any, predictions: Any, count: int, weights: Any) -> Any:
    """Return counts of true and false positives, true and false negatives, precision and recall at each threshold."""
    each = np.ones(len(labels)) if weights is None else np.broadcast_to(array_of(weights), labels.shape)
    at = np.floor(predictions * (count - 1)).astype(np.int64)
    hits, misses = each * labels, each * (1 - labels)
    above = [np.bincount(at, weights=part, minlength=count)[:count][::-1].cumsum()[::-1] for part in (hits, misses)]
    tp, fp = above
    tn, fn = fp[0] - fp, tp[0] - tp
    tiny = 1e-7
    return np.stack([tp, fp, tn, fn, tp / np.maximum(tiny, tp + fp), tp / np.maximum(tiny, tp + fn)])


def pr_curve_raw(
    tag: str, tp: Any, fp: Any, tn: Any, fn: Any, precision: Any, recall: Any, num_thresholds: int = 127,
    weights: Any = None,
) -> Any:  # fmt: skip
    """Return the record of a curve of precision and recall that the program has computed."""
    count = min(num_thresholds, 127)
    data = np.stack([array_of(row) for row in (tp, fp, tn, fn, precision, recall)])
    proto = TensorProto(dtype="DT_FLOAT", float_val=data.reshape(-1).tolist(), tensor_shape=_shape(data.shape))
    metadata = _metadata("pr_curves", PrCurvePluginData(version=0, num_thresholds=count).SerializeToString())
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=proto)])


def custom_scalars(layout: dict[str, dict[str, Any]]) -> Any:
    """Return the record of how charts are arranged: by category and title, their kind and the tags in them."""
    categories = [
        layout_pb2.Category(title=category, chart=[_chart(title, *chart) for title, chart in charts.items()])
        for category, charts in layout.items()
    ]
    content = layout_pb2.Layout(category=categories).SerializeToString()
    proto = TensorProto(dtype="DT_STRING", string_val=[content], tensor_shape=TensorShapeProto())
    value = Summary.Value(tag="custom_scalars__config__", tensor=proto, metadata=_metadata("custom_scalars"))
    return Summary(value=[value])


def _chart(title: str, kind: str, tags: list[str]) -> Any:
    if kind != "Margin":
        return layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=tags))
    value, lower, upper = tags
    series = layout_pb2.MarginChartContent.Series(value=value, lower=lower, upper=upper)
    return layout_pb2.Chart(title=title, margin=layout_pb2.MarginChartContent(series=[series]))


def mesh(
    tag: str,
    vertices: Any,
    colors: Any,
    faces: Any,
    config_dict: Any,
    display_name: Any = None,
    description: Any = None,
) -> Any:
    """Return the records of a mesh: its points, their colours, and the triangles between them."""
    from tensorboard.plugins.mesh import metadata
    from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData

    config = json.dumps(config_dict or {}, sort_keys=True)
    kinds = MeshPluginData.ContentType
    given = [(vertices, kinds.VERTEX), (faces, kinds.FACE), (colors, kinds.COLOR)]
    present = [(array_of(part), kind) for part, kind in given if part is not None]
    components = metadata.get_components_bitmask([kind for _, kind in present])
    values = []
    for array, kind in present:
        about = metadata.create_summary_metadata(
            tag, display_name, kind, components, array.shape, description, json_config=config
        )
        proto = TensorProto(dtype="DT_FLOAT", float_val=array.reshape(-1).tolist(), tensor_shape=_shape(array.shape))
        values.append(Summary.Value(tag=metadata.get_instance_name(tag, kind), tensor=proto, metadata=about))
    return Summary(value=values)
