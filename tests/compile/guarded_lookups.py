"""Functions that ask for classes and attributes in ways that a program may change, and what they leave changed."""

from __future__ import annotations

import abc
import functools
import types
from types import SimpleNamespace
from typing import Any

from .guarded import CHANGES, Guarded, builder, guarded


class First:
    """A class that objects have first."""

    number = 2.0


class Second:
    """The class that they are given."""

    number = 3.0


@builder
def class_that_is_asked_for(tg: Any) -> Guarded:
    kept = First()

    def function(x: Any) -> Any:
        return x.sin() * (2.0 if isinstance(kept, First) else 3.0) + x.cos() - x

    return guarded(function, lambda: setattr(kept, "__class__", Second))


@builder
def class_whose_attribute_is_read(tg: Any) -> Guarded:
    kept = First()

    def function(x: Any) -> Any:
        return x.sin() * type(kept).number + x.cos() - x

    return guarded(function, lambda: setattr(kept, "__class__", Second))


@builder
def class_that_is_registered(tg: Any) -> Guarded:
    class Interface(abc.ABC):  # noqa: B024
        """What another class is registered for."""

    kept = Second()

    def function(x: Any) -> Any:
        return x.sin() * (2.0 if isinstance(kept, Interface) else 3.0) + x.cos() - x

    return guarded(function, lambda: Interface.register(Second))


@builder
def class_that_decides_itself(tg: Any) -> Guarded:
    class Kind(type):
        """Decides what is of its classes."""

        takes_all = False

        def __instancecheck__(cls, one: object) -> bool:
            return Kind.takes_all

    class Special(metaclass=Kind):
        """A class that asks its metaclass."""

    kept = Second()

    def function(x: Any) -> Any:
        return x.sin() * (2.0 if isinstance(kept, Special) else 3.0) + x.cos() - x

    return guarded(function, lambda: setattr(Kind, "takes_all", True), is_left_out=False)


def _a_class() -> type:
    return type("Made", (), {"number": 2.0})


@builder
def property_that_hides_an_attribute(tg: Any) -> Guarded:
    made: Any = _a_class()
    kept = made()
    kept.size = 2.0

    def function(x: Any) -> Any:
        return x.sin() * kept.size + x.cos() - x

    return guarded(function, lambda: setattr(made, "size", property(lambda self: 3.0)))


@builder
def property_instead_of_a_value(tg: Any) -> Guarded:
    made: Any = _a_class()
    kept = made()
    kept.number = 5.0

    def function(x: Any) -> Any:
        return x.sin() * kept.number + x.cos() - x

    return guarded(function, lambda: setattr(made, "number", property(lambda self: 3.0)))


@builder
def look_up_that_a_class_gets(tg: Any) -> Guarded:
    made: Any = _a_class()
    kept = made()

    def function(x: Any) -> Any:
        return x.sin() * kept.number + x.cos() - x

    return guarded(function, lambda: setattr(made, "__getattribute__", lambda self, name: 3.0))


@builder
def truth_that_a_class_gets(tg: Any) -> Guarded:
    made: Any = _a_class()
    kept = made()

    def function(x: Any) -> Any:
        return x.sin() * (2.0 if kept else 3.0) + x.cos() - x

    return guarded(function, lambda: setattr(made, "__bool__", lambda self: False))


@builder
def attribute_that_counts_its_reads(tg: Any) -> Guarded:
    class Counted:
        """A descriptor that counts."""

        count = 0

        def __get__(self, owner: Any, kind: Any) -> int:
            Counted.count += 1
            return Counted.count

    class Holder:
        """Has it."""

        number = Counted()

    def function(x: Any) -> Any:
        return x.sin() * Holder.number + x.cos() * Holder().number - x

    return guarded(function, is_left_out=False)


@builder
def name_that_a_module_makes(tg: Any) -> Guarded:
    module: Any = types.ModuleType("made")
    reads: list[str] = []
    module.__getattr__ = lambda name: float(reads.append(name) or len(reads))

    def function(x: Any) -> Any:
        return x.sin() * module.number + x.cos() - x

    return guarded(function, is_left_out=False)


@builder
def text_that_reads_an_attribute(tg: Any) -> Guarded:
    kept = SimpleNamespace(mode="a")

    def function(x: Any) -> Any:
        return x.sin() * len("{0.mode}".format(kept)) + x.cos() - x  # noqa: UP030, UP032

    return guarded(function, lambda: setattr(kept, "mode", "long"), is_left_out=False)


@builder
def property_computed_once(tg: Any) -> Guarded:
    class Holder:
        """Has a number that is computed once."""

        number = 2.0

        @functools.cached_property
        def twice(self) -> float:
            return self.number * 2

    kept = Holder()

    def function(x: Any) -> Any:
        return x.sin() * kept.twice + x.cos() - x

    def change() -> None:
        kept.number = 3.0
        del kept.twice

    return guarded(function, change)


@builder
def keyword_defaults_of_a_helper(tg: Any) -> Guarded:
    def helper(x: Any, *, by: float = 2.0) -> Any:
        return x.sin() * by + x.cos() - x

    def function(x: Any) -> Any:
        return helper(x)

    return guarded(function, lambda: setattr(helper, "__kwdefaults__", {"by": 3.0}))


@builder
def global_variables_by_name(tg: Any) -> Guarded:
    namespace = {"NUMBER": 2.0, "__builtins__": __builtins__}

    def function(x: Any) -> Any:
        return x.sin() * globals()["NUMBER"] + x.cos() - x

    made = types.FunctionType(function.__code__, namespace, "function")
    return guarded(made, lambda: namespace.update(NUMBER=3.0), is_left_out=False)


@builder
def method_of_all_tensors(tg: Any) -> Guarded:
    original = tg.Tensor.erf
    tg.Tensor.erf = lambda self: original(self)
    patched = tg.Tensor.erf

    def function(x: Any) -> Any:
        return x.erf() * 2 + x.cos() - x

    def change(number: int) -> None:
        if number == CHANGES:
            tg.Tensor.erf = lambda self: original(self) * 3
        if number == CHANGES + 3:
            tg.Tensor.erf = patched
        if number == CHANGES + 4:
            tg.Tensor.erf = original

    return Guarded(function, lambda x, number: (x,), change, True)


@builder
def whether_a_leaf_is_given(tg: Any) -> Guarded:
    def function(x: Any) -> Any:
        return (x.sin() if x.is_leaf else x.cos()) * 2 + x

    def arguments(x: Any, number: int) -> tuple[Any, ...]:
        x.requires_grad_()
        return (x if number < CHANGES else x * 1,)

    return guarded(function, arguments=arguments, is_left_out=False)


@builder
def threads_that_are_asked_for(tg: Any) -> Guarded:
    before = tg.get_num_threads()

    def function(x: Any) -> Any:
        return x.sin() * tg.get_num_threads() + x.cos() - x

    def change(number: int) -> None:
        if number in (CHANGES, CHANGES + 3):
            tg.set_num_threads(before + 1 if number == CHANGES else before)

    return Guarded(function, lambda x, number: (x,), change, True)


@builder
def property_for_a_name_that_a_class_loses(tg: Any) -> Guarded:
    made: Any = _a_class()
    kept = made()
    kept.size = 2.0

    def function(x: Any) -> Any:
        return x.sin() * kept.size + x.cos() - x

    def change() -> None:
        del made.number
        made.size = property(lambda self: 3.0)

    return guarded(function, change)


@builder
def parent_that_a_class_gets(tg: Any) -> Guarded:
    base: Any = type("Base", (), {})
    other: Any = type("Other", (), {"size": property(lambda self: 3.0)})
    made: Any = type("Made", (base,), {})
    kept = made()
    kept.size = 2.0

    def function(x: Any) -> Any:
        return x.sin() * kept.size + x.cos() - x

    return guarded(function, lambda: setattr(made, "__bases__", (other,)))
