"""Settings of PyTorch's autograd engine that decide nothing here; each says why."""

from __future__ import annotations

import threading

from telegrad._session.grad_mode import ModeBlock


class _Settings(threading.local):
    multithreading = True


_settings = _Settings()


class set_multithreading_enabled(ModeBlock):
    """Note whether backward passes may use several threads: a worker has one, so that nothing changes."""

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self.previous = _settings.multithreading
        _settings.multithreading = self.mode

    def again(self) -> set_multithreading_enabled:
        return set_multithreading_enabled(self.mode)

    def __enter__(self) -> None:
        _settings.multithreading = self.mode

    def __exit__(self, *_: object) -> None:
        _settings.multithreading = self.previous


def is_multithreading_enabled() -> bool:
    """Return what ``set_multithreading_enabled`` has set in this thread."""
    return _settings.multithreading


def is_view_replay_enabled() -> bool:
    """Return False: views of what was modified in place get the history of ``as_strided``."""
    return False


class enforce_grad_layout_policy(ModeBlock):
    """Do nothing: a gradient has the layout of its dense parameter, else it is row-major, whatever ``enable`` says."""

    def __init__(self, enable: bool = True) -> None:
        self.enable = enable

    def again(self) -> enforce_grad_layout_policy:
        return enforce_grad_layout_policy(self.enable)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass
