"""``Future``: a value that comes later, under the name of ``torch.futures``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from telegrad_protocol.errors import OperatorError

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")


class Future(Generic[T]):
    """A value, or an error, that another thread sets."""

    def __init__(self, *, devices: Any = None) -> None:
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], Any]] = []

    def done(self) -> bool:
        """Whether the value is there."""
        return self._done.is_set()

    def wait(self) -> Any:
        """Wait for the value and return it, or raise the error that was set."""
        self._done.wait()
        return self.value()

    def value(self) -> Any:
        """Return the value, which must be there, or raise the error that was set."""
        if not self.done():
            raise OperatorError("Future: the value is not there yet; call wait()")
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, result: Any) -> None:
        """Set the value."""
        self._set(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Set an error instead of a value."""
        self._set(None, result)

    def _set(self, value: Any, error: BaseException | None) -> None:
        with self._lock:
            if self.done():
                raise OperatorError("Future can only be marked completed once")
            self._value, self._error = value, error
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Call ``callback(future)`` once the value is there."""
        with self._lock:
            if not self.done():
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """Return the future of what ``callback(future)`` returns once the value is there."""
        following: Future[Any] = Future()

        def run(done: Future[T]) -> None:
            try:
                following.set_result(callback(done))
            except Exception as error:
                following.set_exception(error)

        self.add_done_callback(run)
        return following


def collect_all(futures: list[Future[T]]) -> Future[list[Future[T]]]:
    """Return the future of the list of futures, once all of them are done."""
    collected: Future[list[Future[T]]] = Future()
    remaining, lock = [len(futures)], threading.Lock()

    def count(_: Future[T]) -> None:
        with lock:
            remaining[0] -= 1
            is_last = not remaining[0]
        if is_last:
            collected.set_result(futures)

    if not futures:
        collected.set_result(futures)
    for future in futures:
        future.add_done_callback(count)
    return collected


def wait_all(futures: Iterable[Future[T]]) -> list[Any]:
    """Wait for all values, and return them."""
    return [future.wait() for future in futures]
