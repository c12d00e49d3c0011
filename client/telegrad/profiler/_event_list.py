"""Lists of events: averages, tables, and files of other tools."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from telegrad_protocol.errors import ArgumentError

from ._events import FunctionEventAvg, key_of
from ._table import build_table

STACK_METRICS: Final = ("self_cpu_time_total", "self_cuda_time_total")


class EventList(list[Any]):
    """Events, or averages of them; prints as a table."""

    def __init__(
        self, events: Iterable[Any] = (), *, use_device: str | None = None, profile_memory: bool = False,
        with_flops: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(events)
        self._use_device, self._profile_memory, self._with_flops = use_device, profile_memory, with_flops

    def _like(self, events: Iterable[Any]) -> EventList:
        return EventList(
            events, use_device=self._use_device, profile_memory=self._profile_memory, with_flops=self._with_flops
        )

    def __str__(self) -> str:
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """The host's time of all events, in microseconds."""
        return float(sum([event.self_cpu_time_total for event in self]))

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55, max_shapes_column_width: int | None = 80, header: str | None = None,
        top_level_events_only: bool = False, time_unit: str | None = None,
    ) -> str:  # fmt: skip
        """Return a table with PyTorch's columns, the largest of ``sort_by`` first; all rows if ``row_limit`` is -1.

        ``sort_by`` is the name of an attribute such as ``cpu_time_total``, ``self_device_time_total``,
        ``cpu_memory_usage`` or ``count``; ``cuda`` may stand for ``device``. ``time_unit`` is ``s``, ``ms`` or ``us``.
        """
        return build_table(
            self, sort_by=sort_by, row_limit=row_limit, max_src_column_width=max_src_column_width,
            max_name_column_width=max_name_column_width, max_shapes_column_width=max_shapes_column_width, header=header,
            profile_memory=self._profile_memory, with_flops=self._with_flops,
            top_level_events_only=top_level_events_only, time_unit=time_unit, use_device=self._use_device,
        )  # fmt: skip

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """Return averages of events of one name, and of one form of operands, stack or overload where wanted."""
        key = key_of(group_by_input_shapes, group_by_stack_n, group_by_overload_name)
        groups: dict[Any, FunctionEventAvg] = {}
        for event in self:
            groups.setdefault(key(event), FunctionEventAvg()).add(event)
        for average in groups.values():
            average.stack = average.stack[:group_by_stack_n]
            if not group_by_input_shapes:
                average.input_shapes = ""
            if not group_by_overload_name:
                average.overload_name = ""
        return self._like(groups.values())

    def total_average(self) -> FunctionEventAvg:
        """Return one average of all events, whatever they are; its key is ``Total``."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
            total.key = None
        total.key = "Total"
        return total

    def supported_export_stacks_metrics(self) -> list[str]:
        """Return what ``export_stacks`` can measure."""
        return list(STACK_METRICS)

    def export_stacks(self, path: str, metric: str) -> None:
        """Write a line per event with its stack and a time, as flame graph tools read it."""
        if metric not in STACK_METRICS:
            raise ArgumentError(f"metric should be one of: {list(STACK_METRICS)}, not {metric!r}")
        table = str.maketrans(" ;\t\n", "____")
        with open(path, "w", encoding="utf-8") as file:
            for event in self:
                time = int(getattr(event, metric.replace("cuda", "device")))
                if event.stack and time > 0:
                    file.write(";".join(entry.translate(table) for entry in reversed(event.stack)) + f" {time}\n")

    def export_chrome_trace(self, path: str) -> None:
        """Write these events in Chrome's format, without anything else; a profile's own method writes all of it."""
        events = [
            {
                "name": event.trace_name, "ph": "X", "ts": event.time_range.start, "dur": event.time_range.elapsed_us(),
                "tid": event.thread, "pid": "CPU functions", "args": {},
            }
            for event in self
        ]  # fmt: skip
        with open(path, "w", encoding="utf-8") as file:
            json.dump(events, file)
