"""One entry of PyTorch's operator database, checked in every aspect, through a client and a server.

An aspect is ``forward`` in a dtype, ``gradient`` and ``second gradient`` in float64, ``non-contiguous``, ``inplace``,
``out`` or ``errors``. Each is checked on all samples, and is what the first failure says.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch.testing import assert_close
from torch.testing._internal.common_utils import noncontiguous_like

import telegrad
from tests.ops.known import is_for_hosts

from .definitions import DEFINED
from .pivots import PIVOTED, is_factorization
from .served import MissingName, Served, named, sharing_memory, to_torch, unwrapped, wrapped

FORWARD: Final = (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64)
RANDOM: Final = frozenset(
    (
        "bernoulli", "multinomial", "normal", "rand", "randn", "randint", "rand_like", "randn_like", "randint_like",
        "uniform", "cauchy", "exponential", "geometric", "log_normal", "empty", "empty_like", "empty_strided",
        "new_empty", "new_empty_strided", "empty_permuted", "nn.functional.dropout", "nn.functional.dropout2d",
        "nn.functional.dropout3d", "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout",
        "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "nn.functional.rrelu",
        "torch.ops.aten._safe_softmax.default", "svd_lowrank", "pca_lowrank", "randperm", "poisson",
        "nn.functional.multi_head_attention_forward",
    )
)  # fmt: skip
"""Operators whose values are drawn: shapes and dtypes are compared."""
DIVIDING: Final = frozenset(("fmod", "remainder", "__rmod__"))
CHOOSING: Final = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "mode": 0}
"""Operators whose indices name any of several equal elements, and the position of their argument ``dim``."""
LOSES_SECOND: Final = {"nn.functional.linear_cross_entropy": ("options",)}
"""Arguments with which PyTorch computes gradients ahead and has no second ones; it is asked without them."""
_TOLERANCES: Final = {
    torch.float32: (5e-5, 5e-5), torch.float64: (1e-7, 1e-8), torch.complex64: (2e-5, 2e-5),
    torch.complex128: (1e-7, 1e-8), torch.float16: (4e-3, 1e-3), torch.bfloat16: (3e-2, 1e-2),
}  # fmt: skip
_WIDER: Final = {
    torch.bfloat16: torch.float32, torch.float32: torch.float64, torch.complex64: torch.complex128,
}  # fmt: skip
MAX_SAMPLES: Final = 30
PASSED: Final = "passed"


def check(info: Any) -> dict[str, str]:
    """Return what came of each aspect that the entry has."""
    results: dict[str, str] = {}
    for aspect, run in _aspects(info):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results[aspect] = _outcome(run)
    return results


def _outcome(run: Callable[[], None]) -> str:
    try:
        torch.manual_seed(0)
        telegrad.manual_seed(0)
        run()
    except MissingName as error:
        return f"missing: {error}"
    except Exception as error:
        message = str(error).partition("caused by")[0]  # the line of this file says nothing of the operator
        return f"{type(error).__name__}: {' '.join(message.split())[:300]}"
    return PASSED


def _aspects(info: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    for dtype in FORWARD:
        if info.supports_dtype(dtype, "cpu"):
            yield f"forward {str(dtype).removeprefix('torch.')}", lambda dtype=dtype: _forward(info, dtype)
    if info.supports_autograd and info.supports_dtype(torch.float64, "cpu"):
        yield "gradient", lambda: _gradients(info, second=False)
        if info.supports_gradgrad:
            yield "second gradient", lambda: _gradients(info, second=True)
    dtype = next((d for d in FORWARD if info.supports_dtype(d, "cpu")), torch.float64)
    yield "non-contiguous", lambda: _noncontiguous(info, dtype)
    if info.inplace_variant is not None:
        yield "inplace", lambda: _inplace(info, dtype)
    if info.supports_out and info.name not in RANDOM:
        yield "out", lambda: _out(info, dtype)
    if info.error_inputs_func is not None:
        yield "errors", lambda: _errors(info)


def _samples(info: Any, dtype: torch.dtype, requires_grad: bool = False) -> Iterator[Any]:
    samples = info.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    if _on_gpu():
        samples = (sample for sample in samples if not is_for_hosts(info.name, sample.kwargs))
    for sample in itertools.islice(samples, MAX_SAMPLES):
        if info.name in DIVIDING and dtype.is_floating_point:
            _spare_tiny(sample)
        yield sample


def _on_gpu() -> bool:
    return str(telegrad.get_default_device()).startswith("cuda")


def _spare_tiny(sample: Any) -> None:
    """Make divisors that stand for 0, the smallest normal number, 1: PyTorch's vector code gives NaN for these."""
    for tensor in (sample.input, *sample.args):
        if isinstance(tensor, torch.Tensor):
            with torch.no_grad():
                tensor[tensor.abs() == torch.finfo(tensor.dtype).tiny] = 1


def _call(info: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call an operator on telegrad: by PyTorch's way where a tensor is among the operands, else by its name."""
    if not info.name.startswith("masked.") and any(isinstance(leaf, Served) for leaf in _leaves([args, kwargs])):
        return unwrapped(function(*args, **kwargs))
    return named(info.name)(*unwrapped(args), **unwrapped(kwargs))


def _draws(info: Any, sample: Any) -> bool:
    """Whether the values of a sample's result are drawn."""
    return info.name in RANDOM or sample.kwargs.get("dropout_p", 0) > 0


def _compare(ours: Any, theirs: Any, draws: bool, slack: float = 1.0) -> None:
    mine, reference = list(_leaves(unwrapped(ours))), list(_leaves(theirs))
    if len(mine) != len(reference):
        raise AssertionError(f"{len(mine)} results for {len(reference)}")
    for own, other in zip(mine, reference, strict=True):
        if not isinstance(other, torch.Tensor):
            if not draws and not _is_same(own, other):
                raise AssertionError(f"{own!r} for {other!r}")
            continue
        if str(own.layout).rpartition(".")[2] != str(other.layout).rpartition(".")[2]:
            raise AssertionError(f"{own.layout} for {other.layout}")
        _compare_tensors(to_torch(own), other.detach().to_dense().resolve_conj().resolve_neg(), draws, slack)


def _is_same(own: Any, other: Any) -> bool:
    if isinstance(other, torch.dtype | torch.device):
        return str(own).removeprefix("telegrad.") == str(other).removeprefix("torch.")
    return bool(own == other or (own != own and other != other))


def _compare_tensors(own: torch.Tensor, other: torch.Tensor, draws: bool, slack: float) -> None:
    if (own.shape, own.dtype) != (other.shape, other.dtype):
        raise AssertionError(f"{own.dtype}{tuple(own.shape)} for {other.dtype}{tuple(other.shape)}")
    if draws:
        return
    rtol, atol = _TOLERANCES.get(other.dtype, (0.0, 0.0))
    other = other.cpu()  # some samples name a GPU, where PyTorch has one
    assert_close(own, other, rtol=rtol * slack, atol=atol * slack, equal_nan=True)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif value is not None:
        yield value


def _arguments(sample: Any) -> tuple[list[Any], dict[str, Any]]:
    """A sample's arguments with stand-ins for telegrad's tensors."""
    args, kwargs = [sample.input, *sample.args], sample.kwargs
    own = wrapped(unwrapped([args, kwargs]))
    named_args = {key: _in_pytorchs_words(theirs, own[1][key]) for key, theirs in kwargs.items()}
    return [_in_pytorchs_words(theirs, ours) for theirs, ours in zip(args, own[0], strict=True)], named_args


def _in_pytorchs_words(theirs: Any, ours: Any) -> Any:
    """An argument that is no tensor as PyTorch's functions take it; it is translated again on the way."""
    return ours if any(isinstance(leaf, Served) or callable(leaf) for leaf in _leaves(ours)) else theirs


def _forward(info: Any, dtype: torch.dtype) -> None:
    for sample in _samples(info, dtype):
        args, kwargs = _arguments(sample)
        ours = wrapped(_call(info, info.op, *args, **kwargs))
        _compare_forward(info, sample, ours, info.op(sample.input, *sample.args, **sample.kwargs))


def _compare_forward(info: Any, sample: Any, ours: Any, theirs: Any) -> None:
    """Compare with PyTorch's results; where it rounds more than telegrad, with what it computes more exactly."""
    process = sample.output_process_fn_grad
    whole, (ours, theirs) = (ours, theirs), (process(ours), process(theirs))
    try:
        _compare(ours, theirs, _draws(info, sample))
    except AssertionError:
        if info.name in PIVOTED and _on_gpu() and _factorizes(info, sample, *whole):
            return
        if info.name in CHOOSING and _chooses_equals(info, sample, ours, theirs):
            return
        wide = _widened(info, sample)
        if wide is None:
            raise
        _compare(ours, _rounded(process(wide), theirs), draws=False)


def _factorizes(info: Any, sample: Any, ours: Any, theirs: Any) -> bool:
    """Whether LU factors differ only in the rows that were chosen."""
    mine, others = [to_torch(leaf) for leaf in _leaves(unwrapped(ours))], list(_leaves(theirs))
    return is_factorization(info.name, sample.input, mine, others, _TOLERANCES[sample.input.dtype][0])


def _chooses_equals(info: Any, sample: Any, ours: Any, theirs: Any) -> bool:
    """Whether results differ only in which of several equal elements an index names."""
    mine, others = [to_torch(leaf) for leaf in _leaves(unwrapped(ours))], list(_leaves(theirs))
    if any(own.shape != other.shape for own, other in zip(mine, others, strict=True)):
        return False
    place = CHOOSING[info.name]
    dim = sample.kwargs.get("dim", sample.args[place] if len(sample.args) > place else -1)
    source, (own, other) = sample.input, (mine[-1], others[-1])
    if own.ndim < source.ndim:
        own, other = own.unsqueeze(dim), other.unsqueeze(dim)
    is_same = all(torch.equal(a, b) for a, b in zip(mine[:-1], others[:-1], strict=True))
    is_distinct = not own.ndim or bool((own.sort(dim)[0].diff(dim=dim) > 0).all())
    return is_same and is_distinct and torch.equal(source.gather(dim, own), source.gather(dim, other))


def _widened(info: Any, sample: Any) -> Any:
    """What PyTorch computes from the sample in the next wider type; None where the sample is of another type."""
    tensors = [leaf for leaf in _leaves([sample.input, sample.args, sample.kwargs]) if isinstance(leaf, torch.Tensor)]
    if not any(tensor.dtype in _WIDER for tensor in tensors):
        return None
    wide = sample.transform(lambda x: x.to(_WIDER.get(x.dtype, x.dtype)) if isinstance(x, torch.Tensor) else x)
    return info.op(wide.input, *wide.args, **wide.kwargs)


def _rounded(wide: Any, like: Any) -> list[Any]:
    pairs = zip(_leaves(wide), _leaves(like), strict=True)
    return [w.to(t.dtype) if isinstance(t, torch.Tensor) else w for w, t in pairs]


def _gradients(info: Any, second: bool) -> None:
    for sample in _samples(info, torch.float64, requires_grad=True):
        args, kwargs = _arguments(sample)
        ours = _call(info, info.op, *args, **kwargs)
        given = {k: v for k, v in sample.kwargs.items() if not second or k not in LOSES_SECOND.get(info.name, ())}
        theirs = DEFINED.get(info.name, info.op)(sample.input, *sample.args, **given)
        process = sample.output_process_fn_grad
        outs = [t for t in _leaves(process(theirs)) if isinstance(t, torch.Tensor) and t.requires_grad]
        mine = [t for t in _leaves(unwrapped(process(wrapped(ours)))) if getattr(t, "requires_grad", False)]
        if len(outs) != len(mine):
            raise AssertionError(f"{len(mine)} results require a gradient, for {len(outs)}")
        if outs and not _draws(info, sample):
            leaves = [t for t in _leaves([sample.input, *sample.args, sample.kwargs]) if _is_leaf(t)]
            own = [t.tensor for t in _leaves([args, kwargs]) if isinstance(t, Served) and t.tensor.requires_grad]
            _compare_gradients((outs, leaves), (mine, own), second)


def _is_leaf(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _compare_gradients(theirs: Any, ours: Any, second: bool) -> None:
    sides = []
    weights: list[torch.Tensor] = []
    for library, (outs, leaves) in ((torch, theirs), (telegrad, ours)):
        if library is torch:
            weights = [torch.randn_like(out) for out in outs]
        given = weights if library is torch else unwrapped(weights)
        grads = library.autograd.grad(outs, leaves, given, create_graph=second, allow_unused=True)
        if second:
            again = [grad for grad in grads if grad is not None and grad.requires_grad and _has_value(grad)]
            total = sum(
                [(grad * grad.conj()).real.sum() if grad.is_complex() else (grad * grad).sum() for grad in again]
            )
            try:
                grads = library.autograd.grad(total, leaves, allow_unused=True) if again else [None] * len(leaves)
            except RuntimeError:
                if library is torch:  # it has no second derivative of what these arguments lead to
                    return
                raise
        sides.append(grads)
    for other, own in zip(*sides, strict=True):
        if other is None or own is None:
            known = other if own is None else _computed(own)
            if known is not None and known.abs().sum() != 0:
                raise AssertionError("a gradient is missing on one side")
            continue
        mine = _computed(own)
        reference = other.detach().to_dense().resolve_conj().resolve_neg()
        _compare_tensors(torch.zeros_like(reference) if mine is None else mine, reference, False, 10 if second else 1)


def _has_value(gradient: Any) -> bool:
    return isinstance(gradient, torch.Tensor) or _computed(gradient) is not None


def _computed(gradient: Any) -> torch.Tensor | None:
    """Return a gradient, None where none reached the tensor: the server knows that, and tells when it is asked."""
    try:
        return to_torch(gradient)
    except telegrad.errors.NotComputedError:
        return None


def _noncontiguous(info: Any, dtype: torch.dtype) -> None:
    for sample in _samples(info, dtype):
        spread = sample.noncontiguous() if hasattr(sample, "noncontiguous") and not _is_sparse(sample) else sample
        try:  # of the same sample, since a few operators read the memory between elements, or refuse such operands
            theirs = info.op(spread.input, *spread.args, **spread.kwargs)
        except RuntimeError:
            continue
        args, kwargs = _arguments(spread)
        ours = _call(info, info.op, *args, **kwargs)
        _compare_forward(info, sample, wrapped(ours), theirs)


def _inplace(info: Any, dtype: torch.dtype) -> None:
    for sample in _samples(info, dtype):
        if sample.broadcasts_input:
            continue
        args, kwargs = _arguments(sample)
        operand = sample.input.clone()  # whose memory holds nothing else
        args[0] = wrapped(unwrapped(operand))
        try:
            theirs = info.inplace_variant(operand, *sample.args, **sample.kwargs)
        except RuntimeError:  # this operand cannot hold the result
            continue
        ours = _call(info, info.inplace_variant, args[0], *args[1:], **kwargs)
        if ours is not args[0].tensor:
            raise AssertionError("the operand itself is not returned")
        _compare(ours, theirs, _draws(info, sample))


def _out(info: Any, dtype: torch.dtype) -> None:
    for sample in itertools.islice(_samples(info, dtype), 5):
        args, kwargs = _arguments(sample)
        theirs = info.op(sample.input, *sample.args, **sample.kwargs)
        if not all(isinstance(t, torch.Tensor) for t in _leaves(theirs)):
            continue
        targets = [torch.empty_like(t) for t in _leaves(theirs)]
        out = targets[0] if isinstance(theirs, torch.Tensor) else tuple(targets)
        own = wrapped(unwrapped(out))
        process = sample.output_process_fn_grad
        try:
            info.op(sample.input, *sample.args, **sample.kwargs, out=out)
        except (TypeError, RuntimeError):  # the database is wrong: PyTorch has no ``out`` for this sample
            continue
        _call(info, info.op, *args, **kwargs, out=own)
        _compare(process(own), process(theirs), _draws(info, sample))
        if _is_sparse(sample):  # there is no other way for the target to lie in memory
            continue
        spread = wrapped(unwrapped(_mapped_out(out)))
        _call(info, info.op, *args, **kwargs, out=spread)
        _compare(process(spread), process(theirs), _draws(info, sample))


def _is_sparse(sample: Any) -> bool:
    """Whether a tensor among the operands is sparse, and so has no strides."""
    operands = _leaves([sample.input, sample.args, sample.kwargs])
    return any(isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided for leaf in operands)


def _mapped_out(out: Any) -> Any:
    return noncontiguous_like(out) if isinstance(out, torch.Tensor) else tuple(map(noncontiguous_like, out))


def _is_accepted(info: Any, sample: Any) -> bool:
    """Whether PyTorch itself takes what its database calls an error."""
    try:
        info.op(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        return False
    return True


def _errors(info: Any) -> None:
    for case, same in zip(info.error_inputs("cpu"), info.error_inputs("cpu"), strict=True):
        if _is_accepted(info, same.sample_input):  # which may change its operands
            continue
        try:
            with sharing_memory():
                args, kwargs = _arguments(case.sample_input)
            result = _call(info, info.op, *args, **kwargs)
            for leaf in _leaves(result):
                if isinstance(leaf, telegrad.Tensor):
                    leaf.tolist()
        except MissingName:
            raise
        except Exception as error:
            if not isinstance(error, telegrad.TelegradError | TypeError | ValueError | IndexError | RuntimeError):
                raise AssertionError(f"{type(error).__name__} for {case.error_type.__name__}") from error
            continue
        raise AssertionError(f"accepted what PyTorch refuses: {case.error_regex[:100]}")
