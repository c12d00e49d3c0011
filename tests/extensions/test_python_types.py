"""What else of pybind11 an extension gives Python: enumerations, operators, unions, keyword arguments, trampolines."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from telegrad import errors
from telegrad_protocol.extension_messages import CallExtension

from .conftest import FOLDER


@pytest.fixture
def extension(kernel_cache: str, tg: Any) -> Any:
    from telegrad.utils.cpp_extension import load

    return load("test_python_types", [FOLDER / "python_types.cpp"], extra_cflags=["-O0"])


def test_enumerations_are_classes_as_pybind11_makes_them(tg: Any, extension: Any, rng: np.random.Generator) -> None:
    Mode, Level = extension.Mode, extension.Level
    assert (repr(Mode.LINEAR), str(Mode.CUBIC), Mode.CUBIC.name) == ("<Mode.LINEAR: 1>", "Mode.CUBIC", "CUBIC")
    assert (int(Mode.CUBIC), Mode.CUBIC.value, hash(Mode.CUBIC), [0, 1, 2, 3, 4][Mode.CUBIC]) == (4, 4, 4, 4)
    assert Mode(4) == Mode.CUBIC != Mode.LINEAR and Mode.LINEAR != 1 and Mode(9).name == "???"
    assert list(Mode.__members__) == ["NEAREST", "LINEAR", "CUBIC"] and Mode.__doc__.startswith(
        "How to sample.\n\nMembers:"
    )
    assert copy.deepcopy(Mode.CUBIC) == Mode.CUBIC and {Mode.CUBIC: 1}[Mode(4)] == 1
    with pytest.raises(TypeError, match="not supported between"):
        assert Mode.LINEAR < Mode.CUBIC
    with pytest.raises(TypeError, match="constructor"):
        Mode("LINEAR")
    assert extension.HIGH is not None and extension.HIGH == Level.HIGH == 7 and extension.LOW < 3 <= Level.HIGH
    assert (Level.HIGH & 3, Level.LOW | 4, 1 ^ Level.HIGH, ~Level.LOW, Level.HIGH != None) == (3, 4, 6, -1, True)  # noqa: E711

    x = rng.standard_normal(5).astype(np.float32)
    for mode, factor in ((None, 1), (Mode.NEAREST, 0), (Mode.CUBIC, 4), (Mode.LINEAR, 1), (Mode.CUBIC, 4)):
        got = extension.scaled(tg.tensor(x)) if mode is None else extension.scaled(tg.tensor(x), mode)
        assert np.array_equal(got.numpy(), x * factor)
    assert extension.next(Mode.NEAREST) == Mode.LINEAR and extension.modes([Mode.CUBIC]) == {"first": Mode.CUBIC}
    assert extension.level(Level.HIGH) == 7 and extension.Vec.Axis.Y.value == 1
    assert extension.Vec.Axis.__qualname__ == "Vec.Axis" and extension.next.__doc__.startswith(
        "next(arg0: Mode) -> Mode"
    )
    for wrong in (lambda: extension.next(1), lambda: extension.next(Level.LOW), lambda: extension.level(7)):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            wrong()


def test_operators_leave_other_operands_to_python(extension: Any) -> None:
    Vec = extension.Vec
    a = Vec(1, 2)
    assert [repr(made) for made in (a + a, a * 3.0, 3.0 * a, -a)] == [
        "Vec(2, 4)",
        "Vec(3, 6)",
        "Vec(3, 6)",
        "Vec(-1, -2)",
    ]
    b = a
    b += Vec(1, 1)
    assert repr(a) == "Vec(2, 3)" == repr(b) and a == b and a != Vec(1, 2) and (a == 3) is False
    for wrong in (lambda: a + 1, lambda: a - a, lambda: {a: 1}):
        with pytest.raises(TypeError):
            wrong()


def test_instances_are_copied_by_what_they_are_pickled_as(extension: Any) -> None:
    a = extension.Vec(1.5, 2)
    for made in (copy.copy(a), copy.deepcopy(a)):
        made.x += 1
        assert (repr(made), repr(a)) == ("Vec(2.5, 2)", "Vec(1.5, 2)")
    assert a.__getstate__() == (1.5, 2.0)
    with pytest.raises(RuntimeError, match="Invalid state!"):
        extension.Vec.__new__(extension.Vec).__setstate__((1.0,))


def test_instances_lie_in_lists_optionals_and_pairs(extension: Any) -> None:
    Vec = extension.Vec
    total, count = extension.sum_of([Vec(1, 2), Vec(3, 4)], Vec(10, 0))
    assert (repr(total), count) == ("Vec(14, 6)", 2) and repr(extension.sum_of([])[0]) == "Vec(0, 0)"


def test_attributes_of_classes_are_those_of_cpp(extension: Any) -> None:
    Vec = extension.Vec
    before = Vec.made
    Vec.made = before + 4
    assert (Vec.made, Vec(0, 0).made, Vec.twice) == (before + 4, before + 4, 2 * before + 8)
    Vec.made = before
    with pytest.raises(AttributeError):
        Vec.twice = 1


def test_what_python_overrides_cpp_does_not_call(extension: Any) -> None:
    class Hexagon(extension.Shape):
        def sides(self) -> int:
            return 6

    made = Hexagon()
    assert made.sides() == 6 and made.name(1) == "shape1" and extension.name_of(made) == "shape2"
    with pytest.raises(NotImplementedError, match=r"Shape.sides is overridden in Python.*give C\+\+ what it returns"):
        extension.sides_of(made)
    assert extension.sides_of(extension.Square()) == 4
    with pytest.raises(RuntimeError, match='pure virtual function "Shape::sides"'):
        extension.sides_of(extension.Shape())


def test_unions_and_sets_take_what_fits(tg: Any, extension: Any) -> None:
    assert extension.doubled(tg.tensor([1.0, 2.0])).tolist() == [2, 4]
    results = [extension.doubled(given) for given in (3, 1.5, "a", [1, 2, 3])]
    assert results == [6, 3.0, "a!", 3] and [type(one) for one in results] == [int, float, str, int]
    assert extension.shifted({1, 5}, 2) == {3, 7} == extension.shifted(frozenset((1, 5)), 2)
    for wrong in (
        lambda: extension.doubled({}),
        lambda: extension.shifted([1], 2),
        lambda: extension.shifted({"a"}, 2),
    ):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            wrong()


def test_arguments_are_given_as_their_kind_says(tg: Any, extension: Any) -> None:
    x = tg.tensor([1.0])
    assert extension.named(x).item() == 2 and extension.named(x, n=3, f=0.5).item() == 3.5
    assert extension.placed(5, 3) == extension.placed(5, b=3) == 2
    assert extension.gathered(1, "a", 2.5, k=3) == (("a", 2.5), {"k": 3, "count": 3})
    for wrong in (lambda: extension.named(x, 3), lambda: extension.placed(a=5, b=3), lambda: extension.gathered()):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            wrong()
    signatures = [one.__doc__.splitlines()[0] for one in (extension.named, extension.placed, extension.gathered)]
    assert signatures == [
        "named(x: torch.Tensor, *, n: int = 2, f: float = 0.0) -> torch.Tensor", "placed(a: int, /, b: int) -> int",
        "gathered(arg0: int, *args, **kwargs) -> tuple",
    ]  # fmt: skip


def test_modules_lie_in_the_module(tg: Any, extension: Any) -> None:
    assert extension.part.twice(tg.tensor([2.0])).item() == 4 and extension.part.SIZE == 3
    assert extension.part.__doc__ == "A part." and extension.part.twice.__module__ == f"{extension.__name__}.part"


def test_functions_of_python_are_refused_with_what_to_do(kernel_cache: str, tg: Any, extension: Any) -> None:
    from telegrad.utils.cpp_extension import load_inline

    with pytest.raises(TypeError, match=r"cannot call Python.*give what it returns"):
        extension.doubled(lambda x: x)
    source = """double call(std::function<double(double)> f) { return f(2); }
torch::Tensor apply(py::function f, torch::Tensor x) { return x; }
torch::Tensor of(py::bytes a) { return torch::zeros({1}); }"""
    with pytest.raises(errors.CompilationError) as caught:
        load_inline("callbacks", source, functions=["call", "apply", "of"], extra_cflags=["-O0"])
    assert "cannot call a function of Python" in str(caught.value) and "take a std::string" in str(caught.value)


@pytest.mark.parametrize(
    "args", [[], [5, 6, 7], [[8, 10**9]], [[9, 99, 0]], [[9, "x", 2**63]], [2**70], [[10, [[0, []]]]]]
)
def test_calls_that_no_client_makes_are_refused(tg: Any, extension: Any, args: list[Any]) -> None:
    """With fewer arguments than a function has, C++ would read what lies behind the last one."""
    x = tg.ones(2)
    x.sum().item()
    for function in (extension.level, extension.next, extension.doubled, extension.shifted):
        number = function._overloads[0].number
        with pytest.raises(errors.TelegradError) as refused:
            x._session.request(lambda request, n=number: CallExtension(n, 0, (), args, 0, request))
        assert not isinstance(refused.value, errors.InternalError), refused.value
    assert x.sum().item() == 2.0


def test_what_cpp_cannot_hold_is_refused(tg: Any, extension: Any) -> None:
    with pytest.raises(TypeError, match="no counterpart"):
        extension.placed(2**63, 1)
    for wrong in (extension.Vec(1, 2), extension.Mode.LINEAR, [extension.Mode.LINEAR]):
        with pytest.raises(TypeError, match="names the class of its argument"):
            extension.gathered(1, wrong)
    assert extension.gathered(0, {1, 2}) == (({1, 2},), {"count": 1})
