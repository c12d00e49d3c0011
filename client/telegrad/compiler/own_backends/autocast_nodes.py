"""Nodes that enter and leave regions of autocast, where calls that are written down ran under other settings."""

from __future__ import annotations

from typing import Any, NamedTuple

from telegrad._session.thread_modes import AutocastSettings
from telegrad.amp.autocast_mode import _enter_autocast, _exit_autocast
from telegrad.fx.graph import Graph
from telegrad.fx.node import Node, has_side_effect

has_side_effect(_enter_autocast)
has_side_effect(_exit_autocast)


class _Entered(NamedTuple):
    settings: AutocastSettings
    nodes: list[Node]


class AutocastNodes:
    """The regions that a graph has entered, the outermost first, in one that begins with some settings."""

    def __init__(self, graph: Graph, settings: AutocastSettings) -> None:
        self._graph, self._first = graph, settings
        self._entered: list[_Entered] = []

    def switch(self, settings: AutocastSettings) -> bool:
        """Have what follows in the graph run under these settings; whether that can be: it began in no inner region."""
        while self._entered and self._now != settings and settings.depth <= self._now.depth:
            self._leave()
        if self._now != settings:
            if settings.depth <= self._first.depth:
                return False
            self._entered.append(
                _Entered(settings, [self._enter(device, settings) for device in self._changed(settings)])
            )
        return True

    def finish(self) -> None:
        """Add the nodes that leave the regions which the graph has entered and not left yet."""
        while self._entered:
            self._leave()

    @property
    def _now(self) -> AutocastSettings:
        return self._entered[-1].settings if self._entered else self._first

    def _changed(self, settings: AutocastSettings) -> list[str]:
        """Return the types of devices whose settings differ from those by now; one of them where none does."""
        before, after = dict(self._now.dtypes), dict(settings.dtypes)
        changed = [
            device for device in after
            if before[device] is not after[device] or (device in settings.enabled) is not (device in self._now.enabled)
        ]  # fmt: skip
        return changed or [*after][:1]

    def _enter(self, device: str, settings: AutocastSettings) -> Node:
        arguments: tuple[Any, ...] = (device, dict(settings.dtypes)[device], device in settings.enabled, None)
        if settings.cache_enabled is not self._now.cache_enabled:
            arguments = (*arguments[:3], settings.cache_enabled)
        return self._graph.call_function(_enter_autocast, arguments)

    def _leave(self) -> None:
        for node in reversed(self._entered.pop().nodes):
            self._graph.call_function(_exit_autocast, (node,))
