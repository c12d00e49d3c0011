"""Labels of what optimizers do, with PyTorch's names, while a program is profiled; names of PyTorch's own tracer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from telegrad._session.labelling import LABELLED, LABELLED_METHODS, Labelled, LabelledMethod

from ._range_log import OpenRange, begin_range, end_range
from ._schedule import ProfilerActivity as ProfilerActivity


class MethodLabels:
    """Labels of one method, from here on until ``remove``."""

    def __init__(self, labelled: LabelledMethod) -> None:
        self._labelled = labelled
        self._plain = getattr(labelled.kind, labelled.method)
        setattr(labelled.kind, labelled.method, _with_label(self._plain, self._name))

    def _name(self, one: Any) -> str:
        _, method, text = self._labelled
        return f"{text}#{type(one).__name__}.{method}"

    def remove(self) -> None:
        """Label nothing any more."""
        setattr(self._labelled.kind, self._labelled.method, self._plain)


def _with_label(method: Any, name: Callable[[Any], str]) -> Any:
    @wraps(method)
    def labelled(one: Any, *args: Any, **kwargs: Any) -> Any:
        opened = begin_range(name(one))
        try:
            return method(one, *args, **kwargs)
        finally:
            end_range(opened)

    return labelled


class Labels:
    """Labels of one class, from here on until ``remove``."""

    def __init__(self, labelled: Labelled) -> None:
        self._labelled = labelled
        self._opened: defaultdict[int, list[OpenRange | None]] = defaultdict(list)
        self._hooks = labelled.before(self._begin), labelled.after(self._end)
        self._zero_grad = labelled.kind.zero_grad
        labelled.kind.zero_grad = _with_label(self._zero_grad, partial(self._name, method="zero_grad"))

    @staticmethod
    def of_all() -> list[Labels | MethodLabels]:
        """Label all that is registered."""
        return [*map(Labels, LABELLED), *map(MethodLabels, LABELLED_METHODS)]

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


class _ExperimentalConfig:
    """Settings of PyTorch's own tracer, which are kept and change nothing: all that they ask for is there anyway."""

    def __init__(self, *positional: Any, **settings: Any) -> None:
        self.settings = positional, settings
