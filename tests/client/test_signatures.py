"""What ``inspect``, ``help`` and editors read of telegrad: real types, PyTorch's parameters, and nothing internal."""

from __future__ import annotations

import inspect
import pydoc
import re
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch

import telegrad as tg
from telegrad import Tensor

MODULES = (
    tg, tg.nn, tg.nn.functional, tg.nn.init, tg.nn.utils, tg.optim, tg.optim.lr_scheduler, tg.autograd, tg.amp, tg.cuda,
    tg.random, tg.backends, tg.errors, tg.return_types, tg.fft,
    tg.linalg, tg.signal.windows, tg.special,
)  # fmt: skip
INTERNAL = re.compile(r"\b(Meta|Metas|Scalar|Size \||_tensor|telegrad_protocol)\b")


def public_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The functions and classes that a module shows, without those of other modules that it imports."""
    listed = getattr(module, "__all__", None)
    for name in dir(module):
        value = getattr(module, name)  # functions are made when they are asked for
        is_listed = name in listed if listed is not None else not name.startswith("_")
        home = getattr(value, "__module__", None) or ""
        if is_listed and isinstance(value, (type, FunctionType)) and home.startswith(module.__name__):
            yield name, value


def methods_of(kind: type) -> Iterator[tuple[str, FunctionType]]:
    for name in list(vars(kind)):
        getattr(kind, name, None)  # methods of tensors are made when they are asked for
        member = vars(kind)[name]
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if isinstance(function, FunctionType) and function.__module__.startswith("telegrad"):
            yield name, function


def public_callables() -> Iterator[tuple[str, Any]]:
    for module in MODULES:
        for name, value in public_names(module):
            yield f"{module.__name__}.{name}", value
            if isinstance(value, type):
                yield from ((f"{module.__name__}.{name}.{method}", function) for method, function in methods_of(value))


CALLABLES = dict(public_callables())


def test_the_signature_of_a_function_is_that_of_its_contract() -> None:
    signature = inspect.signature(tg.add)
    assert str(strip_annotations(signature)) == "(input, other, *, alpha=1, out=None)"
    assert signature.return_annotation is Tensor
    assert inspect.get_annotations(tg.add, eval_str=True)["alpha"] == int | float | complex
    assert (tg.add.__module__, tg.add.__qualname__) == ("telegrad", "add")


def test_the_signature_of_a_method_begins_with_self_and_has_no_out() -> None:
    assert str(strip_annotations(inspect.signature(Tensor.add))) == "(self, other, *, alpha=1)"
    assert (Tensor.add.__module__, Tensor.add.__qualname__) == ("telegrad", "Tensor.add")


def strip_annotations(signature: inspect.Signature) -> inspect.Signature:
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)


def test_there_are_functions_methods_and_modules_to_look_at() -> None:
    assert len(CALLABLES) > 1500
    assert {"telegrad.add", "telegrad.Tensor.add", "telegrad.nn.functional.mse_loss", "telegrad.nn.Linear.__init__",
            "telegrad.optim.AdamW.__init__"} <= CALLABLES.keys()  # fmt: skip


def test_annotations_can_be_evaluated() -> None:
    for name, described in CALLABLES.items():
        if name not in READ_BY_CHECKERS_ONLY:
            inspect.get_annotations(described, eval_str=True)


READ_BY_CHECKERS_ONLY = {"telegrad.Connection.__init__", "telegrad.Tensor.__init__"}


def test_nothing_internal_shows() -> None:
    for name, described in CALLABLES.items():
        text = described.__doc__ or ""
        if not (isinstance(described, type) and issubclass(described, Exception)):  # those have no signature
            text += str(inspect.signature(described))
        assert not INTERNAL.search(text), (name, text)


def test_names_say_where_users_find_it() -> None:
    for name, described in CALLABLES.items():
        assert "._" not in described.__module__, name
        if not name.rpartition(".")[2].startswith("_"):
            assert code_of(member_of(described.__module__, described.__qualname__)) is code_of(described), name


def member_of(module: str, qualname: str) -> Any:
    member: Any = sys.modules[module]
    for name in qualname.split("."):
        member = inspect.getattr_static(member, name)
    return member


def code_of(described: Any) -> Any:
    """What tells functions apart that were made of one another."""
    function = described.fget if isinstance(described, property) else getattr(described, "__func__", described)
    return getattr(function, "__code__", function)


def documented_by_torch() -> Iterator[tuple[str, list[str]]]:
    """Functions beside the first signature in their docstring in PyTorch."""
    for name, _ in public_names(tg):
        text = getattr(getattr(torch, name, None), "__doc__", None) or ""
        match = re.search(rf"^\s*(?:torch\.)?{name}\((.*?)\)(?: ->.*)?$", text, re.MULTILINE)
        if match and name in made_from_contracts():
            yield name, parameters_in(match[1])


def made_from_contracts() -> set[str]:
    from telegrad_protocol.ops import PUBLIC

    return {name for name in PUBLIC if hasattr(getattr(tg, name, None), "__signature__")}


def parameters_in(text: str) -> list[str]:
    """The names of the parameters in a signature as PyTorch's pages write it."""
    parts = re.sub(r"\[[^]]*\]|\\\\|\(.*?\)", "", text).split(",")
    names = (re.split("[:=]", part)[0].strip().lstrip("*") for part in parts)
    return [name for name in names if name.isidentifier()]


def test_parameters_are_named_and_ordered_as_pytorch_documents_them() -> None:
    compared = dict(documented_by_torch())
    assert len(compared) > 200
    for name, theirs in compared.items():
        ours = list(inspect.signature(getattr(tg, name)).parameters)
        wanted = [p for p in theirs if p not in ONLY_ON_THE_PAGE.get(name, ())]
        keyword_only = {"dtype", "out", "layout", "generator"}
        assert [p for p in ours if p in wanted and p not in keyword_only] == [
            p for p in wanted if p not in keyword_only
        ], name  # fmt: skip


# Where PyTorch's pages and its own parser disagree, the names are the parser's.
ONLY_ON_THE_PAGE: dict[str, tuple[str, ...]] = {
    "broadcast_to": ("shape",), "concatenate": ("axis",), "searchsorted": ("values", "sorter"),
    "true_divide": ("dividend", "divisor"), "qr": ("List",),
    "hamming_window": ("pin_memory",),
}  # fmt: skip


def test_help_reads_well() -> None:
    page = pydoc.plain(pydoc.render_doc(tg.add))
    assert page.splitlines()[0] == "Python Library Documentation: function add in module telegrad"
    assert (
        "\n    Add ``other``, multiplied by ``alpha``: input + alpha * other." in page
        and "Tensor" in page
        and "Meta" not in page
    )


def test_help_of_an_overloaded_function_lists_its_forms() -> None:
    page = pydoc.plain(pydoc.render_doc(tg.max))
    assert all(form in page for form in ("max(input)\n", "max(input, other)\n", "max(input, dim, keepdim=False)\n"))


def test_an_alias_is_documented_under_its_own_name() -> None:
    assert "divide(input, other, *, rounding_mode)" in (tg.divide.__doc__ or "")
    assert "\ndiv(" not in (tg.divide.__doc__ or "")


def test_results_with_names_are_classes_of_return_types() -> None:
    assert inspect.signature(tg.sort).return_annotation is tg.return_types.sort
    assert tg.return_types.sort._fields == ("values", "indices")
    with tg.connect():
        assert type(tg.ones(3).sort()) is tg.return_types.sort
