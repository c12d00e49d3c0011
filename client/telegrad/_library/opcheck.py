"""``opcheck``: whether an operator does what its schema, its fake kernel and its derivative say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, Final

from telegrad._dispatch.fake_tensors import FakeTensorMode
from telegrad._functions.creation import allclose
from telegrad._ops.functions import function
from telegrad._ops.shape_operands import mapped
from telegrad._ops.sharing import memory_of
from telegrad._session.grad_mode import enable_grad, no_grad
from telegrad._tensor.listed import tensors_in
from telegrad._tensor.tensor import Tensor
from telegrad.autograd import grad
from telegrad_protocol.errors import ArgumentError, OperatorError, TelegradError

from . import keys
from .custom_ops import CustomOpDef
from .overloads import OpOverload, OpOverloadPacket
from .python_key import fake_kernel
from .rules import fakes

DEFAULT_TEST_UTILS: Final = (
    "test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic",
)  # fmt: skip


class OpCheckError(TelegradError):
    """A check of ``opcheck`` has failed."""


def opcheck(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *,
    test_utils: str | Sequence[str] = DEFAULT_TEST_UTILS, raise_exception: bool = True, atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Check an operator with these arguments, and return for each check ``SUCCESS`` or what was raised.

    ``test_schema``: it writes into the arguments, and returns aliases of those, that its schema says, and no others.
    ``test_autograd_registration``: results that require a gradient come from a kernel for an Autograd key.
    ``test_faketensor``: its fake kernel gives results of the same shapes, strides and types as the real one.
    ``test_aot_dispatch_static`` and ``test_aot_dispatch_dynamic``: results and gradients are the same every time,
    gradients fit the arguments, and the derivative does not look at elements. The checks do, and wait for the server.

    Raises OpCheckError where a check fails, unless ``raise_exception`` is false.
    """
    if (rtol is None) ^ (atol is None):
        raise ArgumentError("opcheck(op, ...): if you specify one of rtol/atol, you must specify both")
    overload = _overload(op)
    names = tuple(_CHECKS) if test_utils == "ALL" else (test_utils,) if isinstance(test_utils, str) else test_utils
    test_utils = names
    if not isinstance(names, (tuple, list)) or not set(names) <= set(_CHECKS):
        raise ArgumentError(
            f"opcheck(op, ..., test_utils={test_utils}), expected test_utils to be subset of {tuple(_CHECKS)} but it "
            "was not"
        )
    tolerance = {"rtol": 1.3e-6 if rtol is None else rtol, "atol": 1e-5 if atol is None else atol}
    results: dict[str, Any] = {}
    for name in names:
        try:
            _CHECKS[name](overload, args, kwargs or {}, tolerance)
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(
                    f"opcheck(op, ...): {name} failed with {error} (scroll up for stack trace)"
                ) from error
            results[name] = error
    return results


def _overload(op: Any) -> OpOverload:
    if isinstance(op, CustomOpDef):
        return op._opoverload
    if isinstance(op, OpOverloadPacket):
        if len(op.overloads()) != 1:
            raise OperatorError(
                f"opcheck can only test operators without overloads. Got the following overloads for "
                f"{op._qualified_op_name}: {op.overloads()}"
            )
        op = getattr(op, op.overloads()[0])
    if not isinstance(op, OpOverload):
        raise ArgumentError(
            "opcheck(op, ...): op must be instance of torch._ops.OpOverload, e.g. torch.ops.aten.sin.default, got "
            f"{type(op)}"
        )
    return op


def _copied(values: Any) -> Any:
    """Return a copy of the tensors of a call, as leaves."""
    if isinstance(values, Tensor):
        with no_grad():
            return values.detach().clone().requires_grad_(values.requires_grad)
    if isinstance(values, dict):
        return {name: _copied(value) for name, value in values.items()}
    return type(values)([_copied(value) for value in values]) if isinstance(values, (list, tuple)) else values


def _without_elements(values: Any) -> Any:
    """Return the arguments of a call with meta tensors that look like its tensors."""
    if isinstance(values, Tensor):
        meta = values._meta
        return function("empty_strided")(meta.shape, meta.strides, dtype=meta.dtype, device="meta")
    if isinstance(values, dict):
        return {name: _without_elements(value) for name, value in values.items()}
    return type(values)(map(_without_elements, values)) if isinstance(values, (list, tuple)) else values


def _named(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, list[Tensor]]]:
    """Return the tensors of each argument."""
    given, named = overload._schema.filled(args, kwargs)
    positional = iter(given)
    values = [named[a.name] if a.kwarg_only else next(positional) for a in overload._schema.arguments]
    return [(a, [*tensors_in([value])]) for a, value in zip(overload._schema.arguments, values, strict=True)]


def _same(one: Tensor, other: Tensor, **tolerance: float) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(allclose(one, other, equal_nan=True, **tolerance))


def _check_schema(
    overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], tolerance: dict[str, float]
) -> None:
    args, kwargs = overload._operator.binder.bind(_copied(args), _copied(kwargs))
    arguments = _named(overload, args, kwargs)
    with no_grad():
        before = [[tensor.clone() for tensor in tensors] for _, tensors in arguments]
        result = overload(*args, **kwargs)
    results = list(result) if isinstance(result, tuple) else [result]
    for (argument, tensors), copies in zip(arguments, before, strict=True):
        name = "input" if argument.name == "self" else argument.name
        memory = {memory_of(tensor) for tensor in tensors}
        for place, out in enumerate(results):
            if memory.isdisjoint([memory_of(tensor) for tensor in tensors_in([out])]):
                continue
            declared = overload._schema.returns[place].alias_info if place < len(overload._schema.returns) else None
            if argument.alias_info is None or declared is None or declared.before_set != argument.alias_info.before_set:
                raise OperatorError(f"Argument {name} is not defined to alias output but was aliasing")
        if not argument.is_write and not all(map(_same, tensors, copies)):
            raise OperatorError(f"Argument {name} is not defined as mutable but was mutated")
    for (first, one), (second, other) in combinations(enumerate(results), 2):
        shared = {memory_of(tensor) for tensor in tensors_in([one])} & {memory_of(t) for t in tensors_in([other])}
        if shared:
            raise OperatorError(f"Outputs {first} and {second} alias unexpectedly")


def _check_autograd(
    overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], tolerance: dict[str, float]
) -> None:
    inputs = [*tensors_in([*args, *kwargs.values()])]
    if not any(tensor.requires_grad for tensor in inputs):
        return
    operator = overload._operator
    is_there = operator.has("Autograd", "CompositeImplicitAutograd", *_keys_of(inputs))
    if is_there or overload.namespace == "aten":
        return
    result = overload(*args, **kwargs)
    results = [*tensors_in(_listed(result))]
    if any(tensor.requires_grad and all(tensor is not given for given in inputs) for tensor in results):
        raise OperatorError(
            f"{overload._name}: at least one output of this operator has requires_grad=True but the operator does not "
            "have an autograd kernel defined at an autograd key (e.g. DispatchKey::Autograd). This could mean that you "
            "have incorrectly registered an autograd kernel to a non-Autograd DispatchKey, which may lead to silently "
            "incorrect results. If your operator consists of regular PyTorch operations, consider not using an "
            "operator at all or registering your operator as CompositeImplicitAutograd. If you have an "
            "autograd.Function registered to a backend (CPU/CUDA/XPU) key, the correct location for it is the Autograd "
            "key."
        )


def _keys_of(tensors: list[Tensor]) -> set[str]:
    return {f"Autograd{keys.key_of_device(tensor.device.type)}" for tensor in tensors}


def _check_fake(
    overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], tolerance: dict[str, float]
) -> None:
    if overload.namespace == "aten":
        return
    args, kwargs = overload._operator.binder.bind(_copied(args), _copied(kwargs))
    with no_grad():
        with fakes.unknown_sizes():
            fake = fake_kernel(overload._operator)
            expected = fakes.run(overload._operator, fake, _without_elements(args), _without_elements(kwargs))
        real = overload(*args, **kwargs)
    pairs = (real, expected) if isinstance(real, tuple) else ((real,), (expected,))
    if not isinstance(expected, type(real)) and not (isinstance(real, Tensor) and isinstance(expected, Tensor)):
        raise OperatorError(f"{overload._name}: the fake kernel returned {expected!r}, and the operator {real!r}")
    theirs, ours = ([*tensors_in(values)] for values in pairs)
    if len(theirs) != len(ours):
        raise OperatorError(f"{overload._name}: the fake kernel returned {len(ours)} tensors, not {len(theirs)}")
    for place, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        _compare_metas(overload, place, one, other)


def _compare_metas(overload: OpOverload, place: int, real: Tensor, fake: Tensor) -> None:
    shape: tuple[int, ...] = fake.shape
    is_unknown = fakes.UNKNOWN in shape
    if is_unknown and len(shape) == len(real.shape):
        shape = tuple([size if told == fakes.UNKNOWN else told for size, told in zip(real.shape, shape, strict=True)])
    differences = [
        ("Shapes", real.shape, fake.shape, tuple(real.shape) != tuple(shape)),
        ("Dtypes", real.dtype, fake.dtype, real.dtype is not fake.dtype),
        ("Devices", real.device, fake.device, real.device != fake.device and fake.device.type != "meta"),
        (
            "Strides",
            real.stride(),
            fake.stride(),
            real.numel() > 1 and not is_unknown and real.stride() != fake.stride(),
        ),
    ]
    for what, one, other, differs in differences:
        if differs:
            raise OperatorError(
                f"When comparing the output of {overload} on FakeTensor and concrete Tensors, found mismatched tensor "
                f"metadata: {what} {one} and {other} are not equal! (result {place}: the concrete one, and what the "
                "fake impl returned)"
            )


def _check_repeated(
    overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], tolerance: dict[str, float]
) -> None:
    _check_fake(overload, args, kwargs, tolerance)
    (first, of_first), (second, of_second) = (_passed(overload, args, kwargs) for _ in range(2))
    if not all(_same(one, other, **tolerance) for one, other in zip(first, second, strict=True)):
        raise OperatorError(f"{overload._name}: outputs of the operator are not the same in a second call")
    for place, (one, other) in enumerate(zip(of_first, of_second, strict=True)):
        if one is not None and other is not None and not _same(one, other, **tolerance):
            raise OperatorError(f"{overload._name}: gradient {place} is not the same in a second call")
    if any(gradient is not None for gradient in of_first):
        _check_derivative_of_shapes(overload, args, kwargs)


def _check_derivative_of_shapes(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run the operator and its derivative on tensors without elements, as a compiler does."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    given, named = mapped((_copied(args), _copied(kwargs)), mode.from_tensor)
    leaves = [tensor for tensor in tensors_in([*given, *named.values()]) if tensor.requires_grad]
    with mode, enable_grad(), fakes.unknown_sizes():
        result = overload(*given, **named)
        roots = [tensor for tensor in tensors_in(_listed(result)) if tensor.requires_grad]
        if roots and leaves and not any(fakes.UNKNOWN in root.shape for root in roots):
            grad(roots, leaves, [function("ones_like")(root) for root in roots], allow_unused=True)


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def _passed(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return the results of a call, and the gradients of its arguments."""
    args, kwargs = _copied(args), _copied(kwargs)
    leaves = [tensor for tensor in tensors_in([*args, *kwargs.values()]) if tensor.requires_grad]
    with enable_grad():
        result = overload(*args, **kwargs)
    results = [*tensors_in(_listed(result))]
    roots = [tensor for tensor in results if tensor.requires_grad]
    if not roots or not leaves or overload._schema.is_mutable:
        return [tensor.detach() for tensor in results], []
    gradients = grad(roots, leaves, [root.detach().clone() for root in roots], allow_unused=True)
    for leaf, gradient in zip(leaves, gradients, strict=True):
        if gradient is not None and gradient.shape != leaf.shape:
            raise OperatorError(f"{overload._name}: the gradient of {leaf._meta} is {gradient._meta}")
    return [tensor.detach() for tensor in results], list(gradients)


_CHECKS: Final[dict[str, Callable[..., None]]] = {
    "test_schema": _check_schema,
    "test_autograd_registration": _check_autograd,
    "test_faketensor": _check_fake,
    "test_aot_dispatch_static": _check_repeated,
    "test_aot_dispatch_dynamic": _check_repeated,
}
