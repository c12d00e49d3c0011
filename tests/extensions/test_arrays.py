"""NumPy's arrays as arguments and results, TensorIterator's loops, and exceptions that are Python's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad import errors

from .conftest import FOLDER


@pytest.fixture
def arrays(kernel_cache: str, tg: Any) -> Any:
    """The extension of ``arrays.cpp``, in the session of ``tg``."""
    from telegrad.utils.cpp_extension import load

    return load("test_arrays", [FOLDER / "arrays.cpp"], extra_cflags=["-O0"])


def test_arrays_come_and_go(arrays: Any, tg: Any, rng: np.random.Generator) -> None:
    given = rng.standard_normal((3, 4))
    for array in (given, given.T, given.astype(np.float32), [[1, 2], [3, 4]], 3):
        result = arrays.scaled(array, by=3.0)
        assert isinstance(result, np.ndarray) and result.dtype == np.float64
        np.testing.assert_array_equal(result, 3.0 * np.asarray(array, dtype=np.float64))
    assert arrays.trace(given) == pytest.approx(np.trace(given.astype(np.float32)), rel=1e-6)
    with pytest.raises(ValueError, match="incorrect number of dimensions"):
        arrays.trace(given[0])
    with pytest.raises(TypeError, match=r"a: numpy\.ndarray\[float64\]"):
        arrays.scaled(tg.ones(2))
    x, (flags,) = arrays.several(tg.ones(2), [[1.0], np.float32([2.5])])
    assert isinstance(x, tg.Tensor) and x.tolist() == [3.5, 3.5]
    np.testing.assert_array_equal(flags, [[False, False], [True, False]])


def test_what_is_written_into_an_array_is_in_it_afterwards(arrays: Any) -> None:
    """An array of another type is converted, and the copy is written to, as pybind11 does."""
    own, other = np.arange(3, dtype=np.int32), np.arange(3)
    arrays.increment(own)
    arrays.increment(other, unused=None)
    assert own.tolist() == [1, 2, 3] and other.tolist() == [0, 1, 2]


def test_iterators_go_through_operands_as_they_lie(arrays: Any, tg: Any, rng: np.random.Generator) -> None:
    """Results lie as PyTorch's do: transposed ones transposed, those of channels last so, too."""
    first, second = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((4, 1))

    def both(make: Any) -> None:
        ours, theirs = (
            make(tg, arrays.halved, arrays.distance),
            make(torch, lambda x: x / 2, lambda a, b: (a - b).abs()),
        )
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
        assert ours.stride() == theirs.stride() and str(ours.dtype)[-7:] == str(theirs.dtype)[-7:]

    both(lambda lib, halved, distance: halved(lib.from_numpy(first)))
    both(lambda lib, halved, distance: halved(lib.from_numpy(first).to(memory_format=lib.channels_last)))
    both(lambda lib, halved, distance: halved(lib.from_numpy(first)[0, 0].t()))
    both(lambda lib, halved, distance: halved(lib.from_numpy(first)[:0]))
    both(lambda lib, halved, distance: distance(lib.from_numpy(first), lib.from_numpy(second)))
    both(lambda lib, halved, distance: distance(lib.from_numpy(first)[..., ::2], lib.tensor(2, dtype=lib.int32)))
    both(lambda lib, halved, distance: distance(lib.arange(4), lib.tensor([0.5, 1.5, 2.5, 9.5])))


def test_iterators_compute_in_the_common_type_and_give_outputs_theirs(arrays: Any, tg: Any) -> None:
    out = tg.zeros(3, dtype=tg.float64)
    assert arrays.distance(tg.arange(3), tg.tensor([0.5, 0.5, 5.0]), out).dtype == tg.float64
    assert out.tolist() == [0.5, 0.5, 3.0]
    with pytest.raises(errors.ExtensionError, match="can't be cast to the desired output type Long"):
        arrays.distance(tg.ones(3), tg.ones(3), tg.zeros(3, dtype=tg.int64))
    assert arrays.differ(tg.tensor([1.0, 2.0]), tg.tensor([[1.0], [2.0]])).tolist() == [[False, True], [True, False]]
    quotient, rest = arrays.divided(tg.tensor([7, 8, 9]), tg.tensor([2, 3, 4]))
    assert quotient.tolist() == [3, 2, 2] and rest.tolist() == [1, 2, 1]


KINDS = [KeyError, AttributeError, ImportError, BufferError, StopIteration, OverflowError, MemoryError, RuntimeError]


@pytest.mark.parametrize(("which", "kind"), list(enumerate(KINDS)))
def test_exceptions_are_pythons(arrays: Any, which: int, kind: type[Exception]) -> None:
    with pytest.raises(kind) as raised:
        arrays.raised(which)
    assert isinstance(raised.value, errors.ExtensionError) and raised.value.message


def test_objects_are_cast_by_functions_and_methods(arrays: Any) -> None:
    assert arrays.count({"count": 2, "more": 3}) == 5
