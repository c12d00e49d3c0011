"""Labels of what optimizers do, with PyTorch's names, while a program is profiled; names of PyTorch's own tracer."""

from __future__ import annotations

from collections import defaultdict
from functools import wraps
from typing import Any

from telegrad._session.labelling import LABELLED, Labelled

from ._range_log import OpenRange, begin_range, end_range
from ._schedule import ProfilerActivity as ProfilerActivity


class Labels:
    """Labels of one class, from here on until ``remove``."""

    def __init__(self, labelled: Labelled) -> None:
        self._labelled = labelled
        self._opened: defaultdict[int, list[OpenRange | None]] = defaultdict(list)
        self._hooks = labelled.before(self._begin), labelled.after(self._end)
        self._zero_grad = labelled.kind.zero_grad
        labelled.kind.zero_grad = self._with_label(self._zero_grad)

    @staticmethod
    def of_all() -> list[Labels]:
        """Label all that is registered."""
        return [Labels(labelled) for labelled in LABELLED]

    def remove(self) -> None:
        """Label nothing any more."""
        for hook in self._hooks:
            hook.remove()
        self._labelled.kind.zero_grad = self._zero_grad

    def _name(self, one: Any, method: str) -> str:
        return f"{self._labelled.kind.__name__}.{method}#{type(one).__name__}.{method}"

    def _begin(self, one: Any, *arguments: Any) -> None:
        opened = self._opened[id(one)]
        is_inner = bool(opened)  # the method of a class calls that of its base
        opened.append(None if is_inner else begin_range(self._name(one, self._labelled.method)))

    def _end(self, one: Any, *arguments: Any) -> None:
        opened = self._opened[id(one)]
        if opened:  # it may have begun before the profile
            end_range(opened.pop())

    def _with_label(self, zero_grad: Any) -> Any:
        @wraps(zero_grad)
        def labelled(one: Any, *args: Any, **kwargs: Any) -> Any:
            opened = begin_range(self._name(one, "zero_grad"))
            try:
                return zero_grad(one, *args, **kwargs)
            finally:
                end_range(opened)

        return labelled


class _ExperimentalConfig:
    """Settings of PyTorch's own tracer, which are kept and change nothing: all that they ask for is there anyway."""

    def __init__(self, *positional: Any, **settings: Any) -> None:
        self.settings = positional, settings
