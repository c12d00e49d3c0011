"""What classes and modes that override operations are asked: functions, methods and operators as themselves."""

from __future__ import annotations

import inspect
from textwrap import dedent
from typing import Any

import pytest

from telegrad._ops.overriding import _of_classes

from .twins import assert_same, evaluate

PROLOGUE = """
from importlib import import_module
F = t.nn.functional
T = t.Tensor
overrides = import_module(t.__name__ + ".overrides")
class Noting(overrides.TorchFunctionMode):
    def __init__(self):
        self.calls = []
    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls.append(function)
        return function(*args, **(kwargs or {}))
x, n, image = t.full((2, 2), 3.0), t.full((2, 2), 3), t.ones(1, 4, 2, 2)
"""
CALLS = {
    "F.relu(x)": "F.relu", "F.silu(x)": "F.silu", "F.softmax(x, 0)": "F.softmax", "F.dropout(x, 0.0)": "F.dropout",
    "F.normalize(x)": "F.normalize", "F.interpolate(image, scale_factor=2)": "F.interpolate",
    "F.pairwise_distance(x, x)": "F.pairwise_distance", "F.linear(x, x)": "F.linear",
    "t.nn.init.uniform_(x, b=2.0)": "t.nn.init.uniform_", "t.nn.init.constant_(x, 1)": "t.nn.init.constant_",
    "t.nn.init.kaiming_uniform_(x)": "t.nn.init.kaiming_uniform_", "t.nn.init.normal_(x)": "t.nn.init.normal_",
    "t.einsum('ij->ji', x)": "t.einsum", "t.unique(x)": "t.unique", "t.cdist(x, x)": "t.cdist", "t.add(x, 1)": "t.add",
    "t.allclose(x, x)": "t.allclose", "t.tensor([1.0])": "t.tensor", "t.zeros(2)": "t.zeros",
    "x + x": "T.add", "1 + x": "T.add", "1 - x": "T.__rsub__", "2 / x": "T.__rdiv__", "x // 2": "T.__floordiv__",
    "5 % x": "T.__rmod__", "x ** 2": "T.__pow__", "2 ** x": "T.__rpow__", "x @ x": "T.matmul", "x == x": "T.__eq__",
    "x != x": "T.ne", "2 < x": "T.gt", "n & 1": "T.__and__", "1 & n": "T.bitwise_and", "n << 1": "T.__lshift__",
    "x.__iadd__(1)": "T.add_", "n.__iand__(1)": "T.__iand__", "x[0]": "T.__getitem__", "1.0 in x": "T.__contains__",
    "x.mul(2)": "T.mul", "x.sum(0)": "T.sum", "x.to(t.float64)": "T.to", "x.double()": "T.double", "x.cpu()": "T.cpu",
    "x.type_as(n)": "T.type_as", "x.unique()": "T.unique", "x.clone()": "T.clone", "x.transpose_(0, 1)": "T.transpose_",
    "x.tolist()": "T.tolist", "x.requires_grad_()": "T.requires_grad_", "repr(x)": "T.__repr__",
    "f'{x}'": "T.__format__",
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_mode_is_asked_for_what_the_program_called(tg: Any, call: str) -> None:
    program = f"{PROLOGUE}\nwith Noting() as mode:\n    {call}\n"
    ours, theirs = evaluate(f"{program}(mode.calls[0] == {CALLS[call]}, mode.calls[0].__name__, len(mode.calls))", tg)
    assert theirs[0] is True
    assert_same(ours, theirs)


@pytest.mark.parametrize(
    "name",
    ["T.add", "T.sum", "T.matmul", "T.clone", "t.add", "t.sin", "F.relu", "T.shape.__get__", "T.grad.__set__",
     "T.requires_grad.__set__", "t.linalg.inv", "t.nn.init.kaiming_uniform_"],
)  # fmt: skip
def test_functions_are_found_by_the_name_that_users_know(tg: Any, name: str) -> None:
    ours, theirs = evaluate(f"{PROLOGUE}\noverrides.resolve_name({name})", tg)
    assert theirs is not None
    assert_same(ours, theirs)


def test_a_class_answers_functions_methods_and_operators_by_themselves(tg: Any) -> None:
    program = """
        answers = {F.softmax: "softmax", F.dropout: "dropout", t.einsum: "einsum"}
        answers |= {T.mul: "mul", T.__eq__: "eq", T.to: "to"}
        class Answering(T):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                if function in answers:
                    return answers[function], len(args)
                return super().__torch_function__(function, types, args, kwargs or {})
        a = t.ones(2).as_subclass(Answering)
        given = [F.softmax(a, 0)[0], F.dropout(a)[0], t.einsum("i,i->", t.ones(2), a)]
        given += [a * 2, 2 * a, a == a, a.to(t.float64)]
        kinds = [type(value) is Answering for value in (a + 1, F.relu(a), F.normalize(a, dim=0), a.double(), 1 - a)]
        (given, kinds, type(a.tolist()) is list, T.mul(t.ones(1), 2), F.softmax(t.ones(1), 0))
    """
    assert_same(*evaluate(f"{PROLOGUE}\n{dedent(program).strip()}", tg))


def test_what_is_no_tensor_answers_functions_written_in_python(tg: Any) -> None:
    program = """
        class Duck:
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                return function.__name__, len(args), [kind.__name__ for kind in types]
        duck = Duck()
        of_functions = t.add(duck, 1), F.softmax(duck, dim=0)[0], t.einsum("i", duck)
        (of_functions, t.ones(1) + duck, t.ones(2) * duck, t.ones(2) @ duck)
    """
    assert_same(*evaluate(f"{PROLOGUE}\n{dedent(program).strip()}", tg))


def test_functions_keep_their_signatures_where_classes_are_asked(tg: Any) -> None:
    before = inspect.signature(tg.nn.functional.interpolate)

    class Own(tg.Tensor):  # type: ignore[misc, name-defined]
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return super().__torch_function__(function, types, args, kwargs or {})

    assert Own.__torch_function__ is not tg.Tensor.__torch_function__
    assert list(inspect.signature(tg.nn.functional.interpolate).parameters) == list(before.parameters)


def test_modes_that_are_entered_can_be_asked_for(tg: Any) -> None:
    program = f"""{PROLOGUE}
seen = []
class Counting(overrides.TorchFunctionMode):
    def __init__(self, name):
        self.name = name
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append((self.name, [mode.name for mode in overrides._get_current_function_mode_stack()]))
        return function(*args, **(kwargs or {{}}))
with Counting("outer") as outer, Counting("inner"):
    t.add(x, 1)
    seen.append(overrides._get_current_function_mode().name)
(seen, overrides._get_current_function_mode(), overrides._get_current_function_mode_stack())
"""
    ours, theirs = evaluate(program, tg)
    assert theirs[0][:2] == [("inner", ["outer"]), ("outer", [])]
    assert_same(ours, theirs)


def test_modes_see_when_operations_begin_and_cease_to_be_recorded(tg: Any) -> None:
    program = f"""{PROLOGUE}
seen = []
class Telling(overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append((function.__name__, args))
        return function(*args, **(kwargs or {{}}))
@t.no_grad()
def computed():
    return t.is_grad_enabled()
with Telling():
    with t.no_grad(), t.enable_grad(), t.set_grad_enabled(False):
        seen.append(t.is_grad_enabled())
    t.set_grad_enabled(False)
    t.set_grad_enabled(True)
    seen.append(computed())
    t.set_grad_enabled(False)(computed)()
    with t.inference_mode():
        seen.append(t.is_grad_enabled())
class Refusing(Telling):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return None
with Refusing(), t.no_grad():
    seen.append(t.is_grad_enabled())
(seen, t.is_grad_enabled())
"""
    ours, theirs = evaluate(program, tg)
    assert ("_set_grad_enabled", (False,)) in theirs[0]
    assert_same(ours, theirs)


@pytest.mark.parametrize(
    "place",
    ["t: t.add", "T: T.add", "F: F.relu", "F: F.softmax", "t: t.sin", "t.linalg: t.linalg.det", "t.fft: t.fft.fft"],
)
def test_functions_that_can_be_overridden_are_listed_by_their_modules(tg: Any, place: str) -> None:
    module, function = place.split(": ")
    program = (
        f"{PROLOGUE}\nfound = overrides.get_overridable_functions()\n({function} in found[{module}], found[object()])"
    )
    ours, theirs = evaluate(program, tg)
    assert theirs == (True, [])
    assert_same(ours, theirs)


@pytest.mark.parametrize("attribute", ["T.shape", "T.grad", "T.requires_grad", "T.T", "T.device"])
def test_accessors_of_attributes_are_among_what_can_be_overridden(tg: Any, attribute: str) -> None:
    program = (
        f"{PROLOGUE}\nfound = overrides.get_overridable_functions()\ntested = overrides.get_testing_overrides()\n"
        f"({attribute}.__get__ in found[{attribute}], tested[{attribute}.__get__](None))"
    )
    ours, theirs = evaluate(program, tg)
    assert theirs == (True, -1)
    assert_same(ours, theirs)


@pytest.mark.parametrize(
    "name", ["is_tensor", "zeros", "arange", "rand", "tensor", "save", "add", "sin", "cat", "ones_like"]
)
def test_functions_that_make_tensors_of_numbers_are_ignored(tg: Any, name: str) -> None:
    ours, theirs = evaluate(f"{PROLOGUE}\nt.{name} in overrides.get_ignored_functions()", tg)
    assert_same(ours, theirs)


def test_gradients_of_a_class_are_asked_for_as_one_function(tg: Any) -> None:
    program = f"""{PROLOGUE}
log = []
class Answering(T):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        log.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {{}})
x = t.ones(2).as_subclass(Answering).requires_grad_()
y = (x * 3).sum()
log.clear()
gradient, = t.autograd.grad(y, x)
(log, type(gradient).__name__, gradient.tolist())
"""
    ours, theirs = evaluate(program, tg)
    assert theirs[0][0] == "grad"
    assert_same(ours, theirs)


def test_a_mode_is_given_the_options_of_a_function_that_makes_tensors(tg: Any) -> None:
    program = f"""{PROLOGUE}
class Seeing(overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append((function.__name__, args, dict(kwargs or {{}})))
        return function(*args, **{{**(kwargs or {{}}), "requires_grad": False}})
seen = []
with Seeing():
    made = t.ones(2, requires_grad=True)
(seen, made.requires_grad)
"""
    ours, theirs = evaluate(program, tg)
    assert theirs == ([("ones", (2,), {"requires_grad": True})], False)
    assert_same(ours, theirs)


def test_neither_modes_nor_classes_are_asked_where_both_are_disabled(tg: Any) -> None:
    program = f"""{PROLOGUE}
core = t._C if t.__name__ == "torch" else import_module("telegrad._programs.compiled_core")
with Noting() as mode:
    with core.DisableTorchFunction():
        t.ones(1) + 1
    with core.DisableTorchFunctionSubclass():
        t.ones(1)
len(mode.calls)
"""
    ours, theirs = evaluate(program, tg)
    assert theirs == 1
    assert_same(ours, theirs)


@pytest.mark.parametrize("name", ["clone", "detach", "where", "nonzero", "add"])
def test_the_first_object_of_a_class_is_asked_for_the_function_that_was_called(tg: Any, name: str) -> None:
    class Duck:
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function, types, len(args)

    duck = Duck()
    assert _of_classes(name, (duck, duck), {}) == (getattr(tg, name), (Duck,), 2)


ASKED = """
overrides = import_module(t.__name__ + ".overrides")
names = []
class Logging(t.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        names.append(func.__name__)
        return overrides.redispatch_function(func, types, args, kwargs)
def scaled(a, b):
    if overrides.has_torch_function((a, b)):
        return overrides.handle_torch_function(scaled, (a, b), a, b)
    return a * b + 1
def failing(a):
    if overrides.has_torch_function((a,)):
        return overrides.handle_torch_function(failing, (a,), a)
    raise KeyError("failing")
"""


def test_a_redispatched_function_is_not_asked_again_and_what_it_calls_is(tg: Any) -> None:
    program = ASKED + dedent("""
        x = t.tensor([3.0]).as_subclass(Logging)
        result = scaled(x, x)
        try:
            failing(x)
        except KeyError:
            again = scaled(t.tensor([1.0]), x)
        ([float(result), float(again)], names, overrides.has_torch_function((x,)))
    """)
    assert_same(*evaluate(f"from importlib import import_module\n{program.strip()}", tg))


def test_a_mode_that_stays_is_asked_of_what_a_redispatched_function_calls(tg: Any) -> None:
    """PyTorch's documentation has this program; PyTorch 2.13 for CPUs crashes in it."""
    names = []

    class Mode(tg.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(func.__name__)
            with self:
                return tg.overrides.redispatch_function(func, types, args, kwargs)

    def scaled(a: Any, b: Any) -> Any:
        if tg.overrides.has_torch_function((a, b)):
            return tg.overrides.handle_torch_function(scaled, (a, b), a, b)
        return a * b + 1

    a, b = tg.tensor([3.0]), tg.tensor([4.0])
    with Mode():
        result = scaled(a, b)
    assert result.tolist() == [13.0] and names == ["scaled", "mul", "add"]
