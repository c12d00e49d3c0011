"""The table of events, with PyTorch's columns and their order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from telegrad_protocol.errors import ArgumentError

from ._events import DeviceType
from ._text import format_memory, format_share, format_time

_WIDTH = 12
_DEVICES = re.compile("cuda|xpu|privateuse1|mtia|hpu")
"""What names of attributes may say instead of ``device``."""
_FLOPS = (("", 1.0), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15))


class Column(NamedTuple):
    """A column: its title, its width, and the text of an event in it."""

    title: str
    width: int
    text: Callable[[Any], str]


class _Totals(NamedTuple):
    host: float
    device: float


def build_table(
    events: Sequence[Any], *, sort_by: str | None, row_limit: int, max_src_column_width: int | None,
    max_name_column_width: int | None, max_shapes_column_width: int | None, header: str | None, profile_memory: bool,
    with_flops: bool, top_level_events_only: bool, time_unit: str | None, use_device: str | None,
) -> str:  # fmt: skip
    """Return the table of events or averages; empty where there are none."""
    if not events:
        return ""
    if time_unit not in (None, "s", "ms", "us"):
        raise ArgumentError(f"table: time_unit should be 's', 'ms' or 'us', not {time_unit!r}")
    totals = _Totals(
        sum([event.self_cpu_time_total for event in events]),
        sum([event.self_device_time_total for event in events if event.device_type is not DeviceType.CPU]),
    )
    columns = _columns(
        events, totals, time_unit, (use_device or "cuda").upper(), profile_memory, with_flops,
        (max_name_column_width, max_shapes_column_width, max_src_column_width),
    )  # fmt: skip
    rows = [event for event in _sorted(events, sort_by) if not (top_level_events_only and event.cpu_parent is not None)]
    line = "".join(["-" * column.width + "  " for column in columns])
    notes = [header] if header else []
    if top_level_events_only:
        notes.append("This report only display top-level ops statistics")
    texts = [text for note in notes for text in ("=" * len(line), note)]
    texts += [line, _row(columns, [column.title for column in columns]), line]
    for event in rows if row_limit < 0 else rows[:row_limit]:
        texts.append(_row(columns, [column.text(event) for column in columns]))
    texts += [line, f"Self CPU time total: {format_time(totals.host, time_unit)}"]
    if totals.device > 0:
        texts.append(f"Self {(use_device or 'cuda').upper()} time total: {format_time(totals.device, time_unit)}")
    return "\n".join(texts) + "\n"


def _sorted(events: Sequence[Any], sort_by: str | None) -> list[Any]:
    if sort_by is None:
        return list(events)
    name = _DEVICES.sub("device", sort_by)
    if not hasattr(events[0], name):
        raise AttributeError(
            f"table: events have no {sort_by!r} to sort by; there are cpu_time, device_time, cpu_time_total, "
            "device_time_total, self_cpu_time_total, self_device_time_total, cpu_memory_usage, device_memory_usage, "
            "self_cpu_memory_usage, self_device_memory_usage, count"
        )
    return sorted(events, key=lambda event: getattr(event, name), reverse=True)


def _row(columns: list[Column], texts: list[str]) -> str:
    return "".join([text.rjust(column.width) + "  " for column, text in zip(columns, texts, strict=True)])


def _columns(
    events: Sequence[Any], totals: _Totals, unit: str | None, device: str, with_memory: bool, with_flops: bool,
    widths: tuple[int | None, int | None, int | None],
) -> list[Column]:  # fmt: skip
    most_name, most_shapes, most_source = widths

    def time(name: str) -> Callable[[Any], str]:
        return lambda event: format_time(getattr(event, name), unit)

    name_width = _width([event.key for event in events], most_name)
    columns = [Column("Name", name_width, lambda event: _cut(event.key, name_width))]
    if any([event.overload_name for event in events]):
        width = _width([event.overload_name or "" for event in events], most_name)
        columns.append(Column("Overload Name", max(width, 15), lambda event: event.overload_name or ""))
    columns += [
        Column("Self CPU %", _WIDTH, lambda event: format_share(event.self_cpu_time_total, totals.host)),
        Column("Self CPU", _WIDTH, time("self_cpu_time_total")),
        Column(
            "CPU total %", _WIDTH,
            lambda event: format_share(event.cpu_time_total, totals.host) if not event.is_async else "0",
        ),
        Column("CPU total", _WIDTH, time("cpu_time_total")),
        Column("CPU time avg", _WIDTH, time("cpu_time")),
    ]  # fmt: skip
    if any([event.self_device_time_total > 0 for event in events]):
        columns += [
            Column(f"Self {device}", _WIDTH, time("self_device_time_total")),
            Column(f"Self {device} %", _WIDTH, lambda event: format_share(event.self_device_time_total, totals.device)),
            Column(f"{device} total", _WIDTH, time("device_time_total")),
            Column(f"{device} time avg", max(_WIDTH, len(device) + 9), time("device_time")),
        ]
    if with_memory:
        columns += _memory_columns(events, device)
    columns.append(Column("# of Calls", _WIDTH, lambda event: str(event.count)))
    if any([event.input_shapes for event in events]):
        width = _width([str(event.input_shapes) for event in events], most_shapes)
        columns.append(Column("Input Shapes", max(width, 14), lambda event: _cut(str(event.input_shapes), width)))
    if any([event.stack for event in events]):
        width = _width([event.stack[0] for event in events if event.stack], most_source)
        columns.append(
            Column("Source Location", width, lambda event: _cut(event.stack[0] if event.stack else "", width))
        )
    if with_flops:
        columns += _flops_column(events)
    return columns


def _memory_columns(events: Sequence[Any], device: str) -> list[Column]:
    columns = [
        Column("CPU Mem", _WIDTH, lambda event: format_memory(event.cpu_memory_usage)),
        Column("Self CPU Mem", _WIDTH, lambda event: format_memory(event.self_cpu_memory_usage)),
    ]
    if any([event.device_memory_usage or event.self_device_memory_usage for event in events]):
        columns += [
            Column(f"{device} Mem", _WIDTH, lambda event: format_memory(event.device_memory_usage)),
            Column(f"Self {device} Mem", max(_WIDTH, len(device) + 9), _self_device_memory),
        ]
    return columns


def _self_device_memory(event: Any) -> str:
    return format_memory(event.self_device_memory_usage)


def _flops_column(events: Sequence[Any]) -> list[Column]:
    most = max([event.flops or 0 for event in events])
    if most <= 0:
        return []
    prefix, scale = [unit for unit in _FLOPS if unit[1] <= most][-1]
    return [Column(
        f"Total {prefix}FLOPs", _WIDTH, lambda event: f"{event.flops / scale:8.3f}" if event.flops else "--"
    )]  # fmt: skip


def _width(texts: list[str], most: int | None) -> int:
    width = max(map(len, texts), default=0) + 4
    return width if most is None else min(width, most)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
