"""Classes of an extension: instances, methods, attributes, inheritance, lifetime; and warnings of its C++."""

from __future__ import annotations

import copy
import gc
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from .conftest import FOLDER


@pytest.fixture
def extension(kernel_cache: str, tg: Any) -> Any:
    from telegrad.utils.cpp_extension import load

    return load("test_classes", [FOLDER / "classes.cpp"], extra_cflags=["-O0"])


def test_instances_keep_tensors_and_numbers_between_calls(tg: Any, extension: Any, rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((2, 3)).astype(np.float32)
    average = extension.Average(tg.tensor(a), weight=2.0)
    assert np.allclose(average.add(tg.tensor(b)).numpy(), a + 2 * b)
    average.weight = 0.5
    assert np.allclose(average.add(x=tg.tensor(b)).numpy(), a + 2.5 * b) and average.weight == 0.5
    assert np.allclose(average.total.numpy(), a + 2.5 * b) and len(average) == 3
    assert np.allclose(average(tg.tensor(b), n=3).numpy(), a + 5.5 * b)
    average.reset()
    assert average.total.tolist() == [0, 0, 0] and repr(average) == "<average of 3>"
    average.doubled = 8
    assert (average.weight, average.doubled, average.UNIT, extension.Average.__doc__) == (4, 8, "m", "A weighted sum.")
    assert extension.Average(4).total.tolist() == [1] * 4 and average.scaled(3) == 30 and average.scaled(3.0) == 1.5
    assert extension.Pair(3, 2.5).first == 3
    with pytest.raises(AttributeError):
        average.total = tg.ones(3)


def test_gradients_flow_through_what_an_instance_keeps(tg: Any, extension: Any) -> None:
    x = tg.ones(3, requires_grad=True)
    average = extension.Average(tg.zeros(3), 3.0)
    average.add(x)
    average.add(x * x).sum().backward()
    assert x.grad.tolist() == [9, 9, 9]


def test_derived_classes_are_their_bases_at_other_addresses_too(tg: Any, extension: Any) -> None:
    average = extension.Average(2)
    assert isinstance(average, extension.Named) and isinstance(average, extension.Mixin)
    assert (average.kind(), average.number, average.twice(), average.mixed) == ("average", 7, 14, 5)
    average.number = 4
    assert average.twice() == 8 and extension.mixed_of(average) == 5
    kinds = [extension.kind_of(given) for given in (average, extension.Named(), None)]
    assert kinds == ["average", "named", "none"]


def test_programs_derive_classes_of_their_own(tg: Any, extension: Any) -> None:
    class Own(extension.Average):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(tg.ones(2), 1.5)
            self.extra = 3

        def kind(self) -> str:
            return "own"

    class Unmade(extension.Average):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            pass

    own = Own()
    assert (own.kind(), own.extra, own.add(tg.ones(2)).tolist(), extension.weight_of(own)) == ("own", 3, [2.5] * 2, 1.5)
    with pytest.raises(TypeError, match=r"__init__\(\) must be called"):
        Unmade().reset()


def test_instances_are_shared_referred_to_or_copied_as_in_pybind11(tg: Any, extension: Any) -> None:
    average = extension.Average(2)
    one, other = extension.shared(average)
    one.weight = 3
    assert average.weight == other.weight == extension.first_of([other]) == 3
    average.itself().weight = 4
    assert average.weight == 4
    holder = extension.Holder(average)
    holder.copied().weight = 5
    assert holder.inner.weight == 4
    holder.referred().weight = 5
    assert holder.inner.weight == 5
    inner = holder.inner
    del holder  # what is inside of it lives on
    inner.weight = 6
    assert inner.weight == 6 and average.weight == 4 and extension.fixed().n == 1


def test_what_nothing_refers_to_is_freed(tg: Any, extension: Any) -> None:
    gc.collect()
    before = extension.Average.live()
    average = extension.Average(2)
    shared = extension.shared(average)
    copied = extension.Holder(average)
    assert extension.Average.live() == before + 2
    del average, copied
    gc.collect()
    assert extension.Average.live() == before + 1
    del shared
    gc.collect()
    assert extension.Average.live() == before


def test_refusals_say_what_fits(tg: Any, extension: Any) -> None:
    average = extension.Average(2)
    for call in (
        lambda: extension.Average("two"), lambda: average.add(3), lambda: extension.weight_of(extension.Named()),
        lambda: extension.weight_of(None),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="incompatible function arguments"):
            call()
    with pytest.raises(TypeError, match="No constructor defined"):
        extension.Fixed()
    with pytest.raises(ValueError, match="expected 1 dimensions"):
        average.add(tg.ones(1, 2)).tolist()
    with pytest.raises(TypeError, match="cannot pickle 'Average' object"):
        copy.copy(average)
    elsewhere = extension.Average._holding(object(), 0)
    elsewhere._id = average._id
    with pytest.raises(TypeError, match="of another session"):
        elsewhere.reset()
    elsewhere._id = 0


def test_methods_without_results_wait_once(tg: Any, extension: Any) -> None:
    average, x = extension.Average(2), tg.ones(2)
    average.reset()
    session = tg._session.current.current_session()
    before = session.round_trips
    for _ in range(5):
        average.reset()
        average.weight = 2.0
    assert session.round_trips <= before + 1  # the setter's first call
    assert average.add(x).tolist() == [2, 2]


def test_lists_of_element_types_are_dispatched(tg: Any, extension: Any) -> None:
    for name in ("float32", "float64", "float16", "int32", "uint8", "uint16", "uint64", "complex64"):
        ours = extension.half_of(tg.tensor([2, 9]).to(getattr(tg, name)))
        theirs = torch.tensor([2, 9]).to(getattr(torch, name)).numpy()
        expected = theirs / 2 if theirs.dtype.kind in "fc" else theirs // 2
        assert np.array_equal(ours.numpy(), expected) and str(ours.dtype).endswith(name)
    with pytest.raises(NotImplementedError, match="\"half_of\" not implemented for 'Bool'"):
        extension.half_of(tg.tensor([True])).tolist()


def test_warnings_reach_the_line_of_the_program(tg: Any, extension: Any) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert extension.warned(tg.ones(3)).tolist() == [2, 2, 2]
        extension.warned_of_nothing(tg.ones(3))
        line = test_warnings_reach_the_line_of_the_program.__code__.co_firstlineno + 4
        assert extension.warned(tg.ones(2)).tolist() == [2, 2]
    texts = [str(warning.message).partition(" (Triggered internally at ")[0] for warning in told]
    expected = ["careful with 3 elements", "only once", "nothing came of 1", "careful with 2 elements"]
    assert [text for text in texts if text != "only once"] == [text for text in expected if text != "only once"]
    assert texts.count("only once") <= 1  # once in a process
    assert {(warning.category, warning.filename) for warning in told} == {(UserWarning, __file__)}
    assert next(w.lineno for w in told if "nothing" in str(w.message)) == line
    assert all("classes.cpp:" in str(warning.message) for warning in told)


def test_a_filter_makes_errors_of_warnings_and_the_session_goes_on(tg: Any, extension: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="careful with 3 elements"):
            extension.warned(tg.ones(3)).tolist()
        warnings.simplefilter("ignore")
        assert extension.warned(tg.ones(3)).tolist() == [2, 2, 2]
