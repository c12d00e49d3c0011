"""The version that programs find as ``torch.__version__`` compares as PyTorch's does."""

from __future__ import annotations

import itertools
import operator
from typing import Any

from torch.torch_version import TorchVersion as Theirs

from telegrad._programs.torch_version import TorchVersion

TEXTS = [
    "2.13.0+telegrad.0.1.0", "2.13.0", "2.13", "2.2", "2.2.0.dev1", "2.2.0rc1", "2.2.0a0+git12", "2.2.0a2", "2.2.post1",
    "1.8.0+cu111", "2.13.0+telegrad.0.2", "v2.2", "2.2.0.post1.dev2", "nightly", "2.2-beta3",
]  # fmt: skip
OTHERS: list[Any] = [(2, 2), (2, 13, 0), [1, 8], (2, "2", "0a2")]


def _compared(version: Any, other: Any) -> list[bool]:
    return [compare(version, other) for compare in (operator.lt, operator.le, operator.eq, operator.ge, operator.gt)]


def test_versions_compare_as_those_of_pytorch() -> None:
    for text, other in itertools.product(TEXTS, [*TEXTS, *OTHERS]):
        if text == "nightly" and not isinstance(other, str):
            continue
        found, expected = _compared(TorchVersion(text), other), _compared(Theirs(text), other)
        assert found == expected, (text, other)


def test_a_version_is_a_text_and_compares_with_nothing_else() -> None:
    version = TorchVersion("2.13.0")
    assert isinstance(version, str) and repr(version) == repr("2.13.0") and {version: 1}["2.13.0"] == 1
    for compare in (operator.lt, operator.gt):
        for t in (TorchVersion, Theirs):
            try:
                compare(t("2.13.0"), 2)
                raise AssertionError("not refused")
            except TypeError:
                pass
    assert version != 2
