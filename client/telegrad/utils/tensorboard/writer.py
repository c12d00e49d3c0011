"""``SummaryWriter``: methods that write what a program measures into files, in a folder that TensorBoard shows."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from telegrad_protocol.errors import NotSupportedError

from . import summary
from .arrays import array_of
from .embeddings import write_embedding

_Time = float | None
_Step = int | None


class FileWriter:
    """Writes events into one file of a folder; a thread of its own writes them to the disk."""

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "") -> None:
        self._log_dir = str(log_dir)
        self.event_writer = EventFileWriter(self._log_dir, max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """Return the folder that the file is in."""
        return self._log_dir

    def add_event(self, event: Any, step: Any = None, walltime: _Time = None) -> None:
        """Write an event at a step and a time, by default now."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: Any = None, walltime: _Time = None) -> None:
        """Write the record of a summary as an event, at a step and a time, by default now."""
        self.add_event(Event(summary=summary), global_step, walltime)

    def flush(self) -> None:
        """Wait until all events are on the disk."""
        self.event_writer.flush()

    def close(self) -> None:
        """Write all events that wait to the disk, and close the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Do nothing: a writer that was closed is made anew by whoever writes again."""


class SummaryWriter:
    """Writes records below ``log_dir``, by default a new folder ``runs/<time>_<host><comment>``.

    With ``purge_step`` TensorBoard forgets what an earlier writer wrote at that step and later.
    """

    def __init__(
        self, log_dir: Any = None, comment: str = "", purge_step: _Step = None, max_queue: int = 10,
        flush_secs: float = 120, filename_suffix: str = "",
    ) -> None:  # fmt: skip
        now = datetime.now().strftime("%b%d_%H-%M-%S")
        self.log_dir = str(log_dir) if log_dir else str(Path("runs", f"{now}_{socket.gethostname()}{comment}"))
        self.purge_step = purge_step
        self.max_queue = max_queue
        self.flush_secs = flush_secs
        self.filename_suffix = filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        """Return the writer of the folder, which is made again after ``close``."""
        if self.all_writers is None or self.file_writer is None:
            self.file_writer = self._opened(self.log_dir)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                self.file_writer.add_event(Event(step=self.purge_step, file_version="brain.Event:2"))
                session = SessionLog(status=SessionLog.START)
                self.file_writer.add_event(Event(step=self.purge_step, session_log=session))
                self.purge_step = None
        return self.file_writer

    def _opened(self, folder: str) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def get_logdir(self) -> str:
        """Return the folder in which files are written."""
        return self.log_dir

    def _add(self, record: Any, global_step: Any, walltime: _Time) -> None:
        self._get_file_writer().add_summary(record, global_step, walltime)

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: Any = None, walltime: _Time = None, new_style: bool = False,
        double_precision: bool = False,
    ) -> None:  # fmt: skip
        """Write a number of a step into the chart of its tag."""
        record = summary.scalar(tag, scalar_value, new_style=new_style, double_precision=double_precision)
        self._add(record, global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Any = None, walltime: _Time = None
    ) -> None:
        """Write numbers that are shown in one chart, each into a folder of its own."""
        walltime = time.time() if walltime is None else walltime
        folder = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        for tag, value in tag_scalar_dict.items():
            own = f"{folder}/{main_tag.replace('/', '_')}_{tag}"
            if own not in self.all_writers:
                self.all_writers[own] = self._opened(own)
            self.all_writers[own].add_summary(summary.scalar(main_tag, value), global_step, walltime)

    def add_hparams(
        self, hparam_dict: Any, metric_dict: Any, hparam_domain_discrete: Any = None, run_name: str | None = None,
        global_step: Any = None,
    ) -> None:  # fmt: skip
        """Write the settings of an experiment and what was measured with them, into a folder of its own."""
        records = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = Path(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(log_dir=folder) as writer:
            for record in records:
                writer._get_file_writer().add_summary(record, global_step)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    def add_tensor(self, tag: str, tensor: Any, global_step: Any = None, walltime: _Time = None) -> None:
        """Write all elements of a tensor."""
        self._add(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self, tag: str, values: Any, global_step: Any = None, bins: Any = "tensorflow", walltime: _Time = None,
        max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """Write how elements are distributed."""
        self._add(summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self, tag: str, min: Any, max: Any, num: Any, sum: Any, sum_squares: Any, bucket_limits: Any,
        bucket_counts: Any, global_step: Any = None, walltime: _Time = None,
    ) -> None:  # fmt: skip
        """Write a distribution that the program has counted."""
        record = summary.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._add(record, global_step, walltime)

    def add_image(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: _Time = None, dataformats: str = "CHW"
    ) -> None:
        """Write a picture, of the layout that ``dataformats`` names, at a step under its tag."""
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: _Time = None, dataformats: str = "NCHW"
    ) -> None:
        """Write the pictures of a batch, side by side."""
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_image_with_boxes(
        self, tag: str, img_tensor: Any, box_tensor: Any, global_step: Any = None, walltime: _Time = None,
        rescale: float = 1, dataformats: str = "CHW", labels: Any = None,
    ) -> None:  # fmt: skip
        """Write a picture with rectangles in it."""
        labels = [labels] * len(box_tensor) if isinstance(labels, str) else labels
        record = summary.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, labels)
        self._add(record, global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: Any = None, close: bool = True, walltime: _Time = None
    ) -> None:
        """Write a figure of Matplotlib, or several of the same size side by side, and close them."""
        from matplotlib import pyplot
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figures = figure if isinstance(figure, list) else [figure]
        pictures = []
        for one in figures:
            canvas = FigureCanvasAgg(one)
            canvas.draw()
            pictures.append(array_of(canvas.buffer_rgba())[..., :3])
            if close:
                pyplot.close(one)
        given: Any = array_of(pictures) if isinstance(figure, list) else pictures[0]
        dataformats = "NHWC" if isinstance(figure, list) else "HWC"
        self._add(summary.image(tag, given, dataformats=dataformats), global_step, walltime)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: Any = None, fps: float = 4, walltime: _Time = None
    ) -> None:
        """Write videos, given as batch, time, channels, height and width."""
        self._add(summary.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self, tag: str, snd_tensor: Any, global_step: Any = None, sample_rate: int = 44100, walltime: _Time = None
    ) -> None:
        """Write a sound between -1 and 1."""
        self._add(summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: _Time = None) -> None:
        """Write a text, which is shown as Markdown."""
        self._add(summary.text(tag, text_string), global_step, walltime)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """Do nothing: telegrad records no graph of a model."""

    def add_onnx_graph(self, prototxt: Any) -> None:
        """Refuse: telegrad writes no files of ONNX."""
        raise NotSupportedError("add_onnx_graph: telegrad writes no ONNX files; see torch.export")

    def add_embedding(
        self, mat: Any, metadata: Any = None, label_img: Any = None, global_step: Any = None, tag: str = "default",
        metadata_header: Any = None,
    ) -> None:  # fmt: skip
        """Write points, a row each, with what is known of them and a picture of each."""
        folder = self._get_file_writer().get_logdir()
        write_embedding(Path(folder), tag, global_step or 0, mat, metadata, label_img, metadata_header)

    def add_pr_curve(
        self, tag: str, labels: Any, predictions: Any, global_step: Any = None, num_thresholds: int = 127,
        weights: Any = None, walltime: _Time = None,
    ) -> None:  # fmt: skip
        """Write precision and recall of predictions at thresholds from 0 to 1."""
        self._add(summary.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(
        self, tag: str, true_positive_counts: Any, false_positive_counts: Any, true_negative_counts: Any,
        false_negative_counts: Any, precision: Any, recall: Any, global_step: Any = None, num_thresholds: int = 127,
        weights: Any = None, walltime: _Time = None,
    ) -> None:  # fmt: skip
        """Write precision and recall that the program has computed."""
        record = summary.pr_curve_raw(
            tag, true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts, precision,
            recall, num_thresholds, weights,
        )  # fmt: skip
        self._add(record, global_step, walltime)

    def add_custom_scalars_multilinechart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Write that numbers are shown in one chart."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Write that a number is shown between two others, the lower and the upper one."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_custom_scalars(self, layout: Any) -> None:
        """Write how charts are arranged: a dictionary of categories, each with charts by their titles."""
        self._add(summary.custom_scalars(layout), None, None)

    def add_mesh(
        self, tag: str, vertices: Any, colors: Any = None, faces: Any = None, config_dict: Any = None,
        global_step: Any = None, walltime: _Time = None,
    ) -> None:  # fmt: skip
        """Write points in space, with their colours and the triangles between them."""
        self._add(summary.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def flush(self) -> None:
        """Wait until all that was written is on the disk."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Write all to the disk, and end; what is written later opens a new file."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
