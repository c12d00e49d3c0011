"""``torch.__version__``, which compares as a version does: 2.13 is later than 2.2, and versions may be tuples."""

from __future__ import annotations

import re
from importlib import import_module
from types import ModuleType
from typing import Any, Final

PYTORCH_VERSION: Final = "2.13.0"
"""The version of PyTorch whose interface telegrad follows."""
_VERSION: Final = re.compile(
    r"v?(?P<release>\d+(\.\d+)*)"
    r"([-_.]?(?P<pre>a|alpha|b|beta|c|rc|pre|preview)[-_.]?(?P<pre_number>\d*))?"
    r"([-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"([-_.]?(?P<dev>dev)[-_.]?(?P<dev_number>\d*))?"
    r"(\+(?P<local>[a-z0-9]+([-_.][a-z0-9]+)*))?",
    re.IGNORECASE,
)
"""Versions as PEP 440 writes them, without epochs."""
_RANKS: Final = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_BEFORE, _AFTER = (-1, 0), (3, 0)
"""The places of development versions of a release, and of the release itself, among its preliminary versions."""


def _key(text: str) -> tuple[Any, ...] | None:
    """Return what versions are ordered by; None for a text that is no version."""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        return None
    release = [int(number) for number in match["release"].split(".")]
    while release and release[-1] == 0:
        release.pop()
    if match["pre"]:
        preliminary = (_RANKS[match["pre"].lower()], int(match["pre_number"] or 0))
    else:
        preliminary = _BEFORE if match["dev"] and not match["post"] else _AFTER
    post = int(match["post_number"] or 0) if match["post"] else -1
    dev = (0, int(match["dev_number"] or 0)) if match["dev"] else (1, 0)
    local = [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in _parts(match["local"])]
    return tuple(release), preliminary, post, dev, tuple(local)


def _parts(local: str | None) -> list[str]:
    return re.split(r"[-_.]", local.lower()) if local else []


class TorchVersion(str):
    """A text that compares with texts and tuples of numbers by the rules of PEP 440."""

    __slots__ = ()

    def _compared(self, other: Any, method: str) -> Any:
        """Return what a comparison of strings gives for the orders of both, or for texts that are no versions."""
        if isinstance(other, (tuple, list)):
            other = ".".join(map(str, other))
        elif not isinstance(other, str):
            return NotImplemented
        ours, theirs = _key(self), _key(other)
        if ours is None or theirs is None:
            return getattr(str, method)(self, other)
        return getattr(tuple, method)(ours, theirs)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, "__lt__")

    def __le__(self, other: Any) -> Any:
        return self._compared(other, "__le__")

    def __eq__(self, other: object) -> Any:
        return self._compared(other, "__eq__")

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, "__ge__")

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, "__gt__")

    __hash__ = str.__hash__


def version_module(name: str) -> ModuleType:
    """Return what stands in ``torch.version``."""
    module = ModuleType(name)
    cuda = "13.0" if import_module("telegrad.cuda").is_available() else None
    vars(module).update(__version__=PYTORCH_VERSION, git_version="", debug=False, hip=None, xpu=None, cuda=cuda)
    return module
