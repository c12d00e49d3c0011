"""Names that programs import from PyTorch's files, and functions that only have a name of their own there."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

NAMES = """
nn.modules.utils: _pair _single _triple _quadruple _ntuple _reverse_repeat_tuple _list_with_default
nn.modules.utils: consume_prefix_in_state_dict_if_present
nn.modules.batchnorm: _BatchNorm _NormBase SyncBatchNorm
nn.modules.conv: _ConvNd _ConvTransposeNd Conv2d
nn.modules.pooling: _AvgPoolNd _MaxPoolNd _AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _LPPoolNd _MaxUnpoolNd
nn.modules.loss: _Loss _WeightedLoss
nn.modules.dropout: _DropoutNd
nn.modules.instancenorm: _InstanceNorm InstanceNorm2d
nn.modules.padding: _ConstantPadNd _ReflectionPadNd _ReplicationPadNd ZeroPad2d
nn.modules.upsampling: Upsample
nn.modules.channelshuffle: ChannelShuffle
nn.modules.lazy: LazyModuleMixin
nn.modules.linear: NonDynamicallyQuantizableLinear Identity
nn.modules.transformer: _get_clones _get_activation_fn _generate_square_subsequent_mask
nn.modules.module: Module _addindent _IncompatibleKeys _EXTRA_STATE_KEY_SUFFIX
nn.modules.activation: MultiheadAttention ReLU
nn.init: _calculate_fan_in_and_fan_out _calculate_correct_fan _no_grad_trunc_normal_ _no_grad_normal_
nn._reduction: get_enum legacy_get_string
nn.functional: has_torch_function has_torch_function_unary has_torch_function_variadic handle_torch_function
nn.parallel: DataParallel DistributedDataParallel
nn.parallel.distributed: DistributedDataParallel
nn.utils.weight_norm: WeightNorm weight_norm remove_weight_norm
nn.utils.spectral_norm: SpectralNorm spectral_norm remove_spectral_norm
nn.utils.rnn: PackedSequence_ PackedSequence
nn.attention: SDPBackend sdpa_kernel
optim.adamw: AdamW
optim.optimizer: Optimizer required ParamsT _use_grad_for_differentiable
optim.lr_scheduler: _LRScheduler LRScheduler Optimizer
"""


def test_programs_find_names_in_pytorchs_files(tg: Any) -> None:
    for line in filter(None, NAMES.splitlines()):
        module, _, names = line.partition(": ")
        for name in names.split():
            assert hasattr(import_module(f"torch.{module}"), name), line
            assert hasattr(import_module(f"telegrad.{module}"), name), f"{module}.{name}"
    import_module("telegrad.nn.utils.weight_norm")
    assert callable(tg.nn.utils.weight_norm) and callable(tg.nn.utils.spectral_norm)
    assert isinstance(tg.nn.MaxPool2d(2), import_module("telegrad.nn.modules.pooling")._MaxPoolNd)
    assert isinstance(tg.nn.ReflectionPad1d(2), import_module("telegrad.nn.modules.padding")._ReflectionPadNd)


def test_prefixes_are_stripped_from_state_dictionaries(tg: Any) -> None:
    states = []
    for library in (torch, tg):
        state = library.nn.Sequential(library.nn.Sequential(library.nn.Linear(2, 2))).state_dict(prefix="module.")
        consume = import_module(f"{library.__name__}.nn.modules.utils").consume_prefix_in_state_dict_if_present
        consume(state, "module.")
        states.append((list(state), list(state._metadata)))
    assert states[0] == states[1]


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_convolutions_are_functions(tg: Any, dims: int, seed: int) -> None:
    torch.manual_seed(seed)
    x, w = torch.randn(2, 4, *[9, 8, 7][:dims]), torch.randn(6, 2, *[3, 2, 3][:dims])
    numbers = {"stride": 2, "padding": 1, "dilation": 2 if dims == 1 else 1, "groups": 2}
    grad = torch.randn_like(getattr(torch, f"conv{dims}d")(x, w, **numbers))
    mine = [tg.tensor(t.numpy()) for t in (x, w, grad)]
    theirs = getattr(torch.nn.grad, f"conv{dims}d_input")(x.shape, w, grad, **numbers)
    ours = getattr(tg.nn.grad, f"conv{dims}d_input")(x.shape, mine[1], mine[2], **numbers)
    assert_close(torch.from_numpy(ours.numpy()), theirs, rtol=1e-4, atol=1e-4)
    theirs = getattr(torch.nn.grad, f"conv{dims}d_weight")(x, w.shape, grad, **numbers)
    ours = getattr(tg.nn.grad, f"conv{dims}d_weight")(mine[0], w.shape, mine[2], **numbers)
    assert_close(torch.from_numpy(ours.numpy()), theirs, rtol=1e-4, atol=1e-4)


def test_groups_of_matrices_are_multiplied(tg: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, stack, ends = rng.standard_normal((7, 4)), rng.standard_normal((2, 4, 8)), [2, 5]
    a, b, offs = tg.tensor(rows, requires_grad=True), tg.tensor(stack, requires_grad=True), tg.tensor(ends)
    grouped_mm = tg.nn.functional.grouped_mm
    by_rows = np.concatenate([rows[:2] @ stack[0], rows[2:5] @ stack[1], np.zeros((2, 8))])
    result = grouped_mm(a, b, offs=offs)
    np.testing.assert_allclose(result.detach().numpy(), by_rows)
    result.sum().backward()
    np.testing.assert_allclose(a.grad.numpy()[2:5], np.tile(stack[1].sum(1), (3, 1)))
    wide = rng.standard_normal((4, 6))
    by_columns = np.concatenate([stack[0].T @ wide[:, :2], stack[1].T @ wide[:, 2:5], np.zeros((8, 1))], 1)
    np.testing.assert_allclose(grouped_mm(b.transpose(1, 2), tg.tensor(wide), offs=offs).detach().numpy(), by_columns)
    summed = np.stack([rows[:2].T @ rows[:2], rows[2:5].T @ rows[2:5]])
    np.testing.assert_allclose(grouped_mm(a.t(), a, offs=offs).detach().numpy(), summed)
    np.testing.assert_allclose(grouped_mm(b.mT, b).detach().numpy(), stack.transpose(0, 2, 1) @ stack)
    with pytest.raises(tg.errors.ShapeError, match="ends of 1 groups"):
        grouped_mm(a, b, offs=offs[:1])
    with pytest.raises(tg.errors.NotSupportedError, match="no floating-point types of eight bits"):
        tg.nn.functional.scaled_mm(a, b, a, 0, b, 0)


def test_parameters_and_state_of_an_optimizer_are_swapped(tg: Any, seed: int) -> None:
    results = []
    for library in (torch, tg):
        w, other = (library.nn.Parameter(library.tensor([start, 2.0])) for start in (1.0, 5.0))
        optimizer = library.optim.SGD([w], lr=0.1, momentum=0.9)
        for parameter in (w, other):
            (parameter * parameter).sum().backward()
        optimizer.step()
        state = optimizer.state_dict()
        with library.optim.swap_in_optimizer_params_and_state(optimizer, {"w": other}, state):
            optimizer.step()
        optimizer.step()
        results.append((w.tolist(), other.tolist()))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6)


def test_factory_arguments_are_checked(tg: Any) -> None:
    choose = tg.nn.factory_kwargs
    assert choose(None) == {} and choose({"device": "cpu", "factory_kwargs": {"dtype": tg.float64}}) == {
        "device": "cpu", "dtype": tg.float64,
    }  # fmt: skip
    with pytest.raises(TypeError, match="unexpected kwargs"):
        choose({"bias": True})
    with pytest.raises(TypeError, match="twice"):
        choose({"dtype": tg.float64, "factory_kwargs": {"dtype": tg.float64}})


def test_a_choice_of_attention_kernels_is_accepted(tg: Any) -> None:
    attention = tg.nn.attention
    with attention.sdpa_kernel([attention.SDPBackend.MATH, attention.SDPBackend.FLASH_ATTENTION]):
        pass
    for wrong, error in (("math", TypeError), ([], ValueError)):
        with pytest.raises(error, match="sdpa_kernel"), attention.sdpa_kernel(wrong):
            pass
