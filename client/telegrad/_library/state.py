"""What a thread's calls of operators depend on beside their arguments: excluded and included keys, and ``vmap``."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from telegrad._session.grad_mode import no_grad

from . import keys


class _State(threading.local):
    """``excluded`` and ``included`` are sets of keys."""

    excluded = 0
    included = 0


state = _State()


class ExcludeDispatchKeyGuard:
    """A block in which calls do not go to these keys."""

    def __init__(self, excluded: keys.DispatchKeySet) -> None:
        self._mask = excluded.bits

    def __enter__(self) -> None:
        self._before, state.excluded = state.excluded, state.excluded | self._mask

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        state.excluded = self._before


class IncludeDispatchKeyGuard:
    """A block in which calls go to these keys too."""

    def __init__(self, included: Any) -> None:
        self._mask = included.bits if isinstance(included, keys.DispatchKeySet) else 1 << keys.parse_key(included)

    def __enter__(self) -> None:
        self._before, state.included = state.included, state.included | self._mask

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        state.included = self._before


class AutoDispatchBelowAutograd:
    """A block in which nothing is recorded: operators' kernels for the Autograd keys are passed by."""

    def __enter__(self) -> None:
        self._before, state.excluded = state.excluded, state.excluded | keys.AUTOGRAD
        self._no_grad = no_grad()
        self._no_grad.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        self._no_grad.__exit__(kind, error, trace)
        state.excluded = self._before


class AutoDispatchBelowADInplaceOrView(AutoDispatchBelowAutograd):
    """The same, and the key of views and in-place operations is passed by too."""

    def __enter__(self) -> None:
        super().__enter__()
        state.excluded |= keys.INPLACE_OR_VIEW
