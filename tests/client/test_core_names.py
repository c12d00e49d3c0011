"""Private names of PyTorch's that published packages use, as programs find them below ``torch``."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

PROGRAM = """
    import torch, unittest.mock
    import torch.autograd.gradcheck
    assert torch.autograd.gradcheck(torch.sin, torch.ones(2, dtype=torch.float64, requires_grad=True))
    import torch._dynamo.config
    config = "torch._dynamo.config.suppress_errors"
    for name, value in ((config, 3), ("torch.nn.functional.relu", 1), ("torch.added", 2)):
        with unittest.mock.patch(name, value, create=name == "torch.added"):
            assert eval(name) == value
        assert name == "torch.added" or eval(name) != value
    assert not hasattr(torch, "added")
    from torch._higher_order_ops import cond, map, scan, while_loop
    import torch._higher_order_ops.scan, torch._higher_order_ops.effects
    operators = torch._higher_order_ops
    assert (operators.scan, operators.cond) == (scan, cond) and callable(map) and callable(while_loop)
    assert callable(scan) and callable(cond) and not callable(operators.effects)
    core = torch._C
    assert core.layout is torch.layout and core.memory_format is torch.memory_format
    assert core.Future is torch.futures.Future and core.JITException is torch.jit.Error
    assert core.default_generator is torch.default_generator and core._VariableFunctions.relu is torch.relu
    assert isinstance(torch.ones(1), core.TensorBase) and core._from_dlpack is torch.utils.dlpack.from_dlpack
    scripted = (core.ScriptMethod, core.ScriptFunction, core.ScriptModule, core.ScriptObject, core.Graph, core.Node)
    assert not isinstance(torch.relu, scripted)
    x = torch.randn(4, 4, dtype=torch.float64)
    spectrum = torch._C._fft.fft_fft(x)
    assert torch.equal(spectrum, torch.fft.fft(x))
    assert torch.equal(torch._C._linalg.linalg_det(x), torch.linalg.det(x))
    assert torch.equal(torch._C._special.special_xlogy(x.abs(), x.abs()), torch.special.xlogy(x.abs(), x.abs()))
    assert torch.equal(torch._VF.sigmoid(x), x.sigmoid())
    lstm = torch.nn.LSTM(4, 3, 2, dtype=torch.float64)
    state = [torch.zeros(2, 1, 3, dtype=torch.float64)] * 2
    given = torch.randn(5, 1, 4, dtype=torch.float64)
    out, *_ = torch._VF.lstm(given, state, lstm._flat_weights, True, 2, 0.0, False, False, False)
    assert torch.allclose(out, lstm(given)[0])
    assert torch.has_mkl and torch.has_lapack and torch.has_spectral and torch.has_openmp
    before = torch.get_autocast_cpu_dtype(), torch.get_autocast_gpu_dtype()
    torch.set_autocast_cpu_dtype(torch.float16)
    torch.set_autocast_gpu_dtype(torch.bfloat16)
    assert torch.get_autocast_dtype("cpu") is torch.float16 and torch.get_autocast_dtype("cuda") is torch.bfloat16
    assert torch.autocast("cpu").fast_dtype is torch.float16
    torch.set_autocast_cpu_dtype(before[0])
    torch.set_autocast_gpu_dtype(before[1])
    torch.set_autocast_cpu_enabled(True)
    single = x.float()
    assert torch.is_autocast_enabled("cpu") and (single @ single.T).dtype is before[0]
    torch.set_autocast_cpu_enabled(False)
    assert (single @ single.T).dtype is torch.float32
    from torch.masked._ops import amax
    assert torch.equal(amax(x, 1, mask=x.abs() >= 0), x.amax(1))
    from torch.autograd import forward_ad
    assert forward_ad._current_level == -1
    with forward_ad.dual_level():
        assert forward_ad._current_level == 0
    whole, empty = torch.zeros(4, 4), torch.zeros(0)
    shown, holder = torch._C._is_alias_of, torch.nn.Linear(1, 1)
    assert shown(whole, whole) and shown(whole, whole[1:]) and shown(whole[0], whole.detach().T)
    holder.weight.data = whole
    assert shown(holder.weight, whole) and not shown(whole, whole.clone()) and not shown(empty, torch.zeros(0))
    assert isinstance(whole.untyped_storage(), torch.StorageBase)
    pairs = [torch.tensor([1.0, -2.0]), torch.tensor([[3.0]])]
    assert [t.tolist() for t in torch._foreach_powsum(pairs, 3)] == [9.0, 27.0]
    assert torch._foreach_mm([pairs[1]], [pairs[1]])[0].tolist() == [[9.0]]
    for made in (torch._foreach_add(pairs, 1), torch._foreach_norm(pairs), torch._foreach_clone(pairs)):
        assert type(made) is tuple and made[0] is not pairs[0]
    from torch.torch_version import TorchVersion
    assert type(torch.__version__) is TorchVersion and torch.__version__ >= "2.4" and torch.__version__ >= (2, 4)
    from torch.nn import _reduction
    from torch.fx._compatibility import compatibility
    from torch.utils._triton import has_triton, has_triton_package
    assert _reduction.get_enum("sum") == 2 and compatibility(is_backward_compatible=False)(has_triton) is has_triton
    assert has_triton() in (False, has_triton_package() and torch.cuda.is_available())
    from torch.nn.utils.stateless import _reparametrize_module
    linear = torch.nn.Linear(2, 2, bias=False)
    with _reparametrize_module(linear, {"weight": torch.eye(2)}):
        assert linear(torch.ones(2)).tolist() == [1.0, 1.0]
    assert isinstance(linear.weight, torch.nn.Parameter)
    for path in ("fx.experimental.proxy_tensor", "fx.passes.operator_support", "utils.collect_env"):
        assert eval(f"torch.{path}").__name__ == f"torch.{path}"
    from torch.cuda.amp.grad_scaler import OptState
    from torch.amp.grad_scaler import OptState as SameState
    assert OptState is SameState
    from torch.nn.modules import module as modules
    handle = modules.register_module_forward_hook(lambda *given: None)
    assert len(modules._global_forward_hooks) == 1 and not modules._global_forward_pre_hooks
    assert not modules._global_backward_hooks and not modules._global_backward_pre_hooks
    handle.remove()
    torch.cuda._lazy_init()
    called = []
    torch.cuda._lazy_call(lambda: called.append(1))
    assert called == [1] and not torch.cuda._is_in_bad_fork()
    import torch.utils.benchmark as benchmark
    from torch.utils.benchmark import Compare, Timer
    assert Timer("x + 1", globals={"x": x}).timeit(3).number_per_run == 3 and benchmark.Compare is Compare
    try:
        torch._VF.no_such_function
    except AttributeError as error:
        assert "no_such_function" in str(error)
    assert torch.cuda._initialized == torch.cuda._is_compiled() == torch.cuda.is_available()
    from torch.cuda.amp.common import amp_definitely_not_available
    assert amp_definitely_not_available() != torch.cuda.is_available()
    import torch.utils.benchmark.utils.common as common
    from torch.utils.benchmark.utils.timer import timer
    assert common.Measurement is benchmark.Measurement and callable(timer)
    assert benchmark.utils.compare.Compare is benchmark.Compare
    from torch.utils.benchmark.utils.fuzzer import Fuzzer
    assert Fuzzer is benchmark.Fuzzer
    assert torch.autograd.kineto_available() and torch.autograd.profiler.kineto_available()
    from torch._jit_internal import BroadcastingList2, _overload, _overload_method, boolean_dispatch, is_scripting
    assert BroadcastingList2[int] == list[int] and not is_scripting() and _overload_method(_overload(timer)) is timer
    from torch._guards import detect_fake_mode
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode() as mode:
        assert detect_fake_mode([torch.ones(2)]) is mode
    assert detect_fake_mode(x) is None
    assert torch.classes.loaded_libraries is torch.ops.loaded_libraries
    assert torch.classes.mine.name == "mine" and torch.classes.mine is torch.classes.mine
    from torch.monitor import Event, log_event, register_event_handler
    register_event_handler(called.append)
    log_event(Event("step", __import__("datetime").datetime.now(), {"loss": 0.5}))
    assert called[-1].data == {"loss": 0.5} and torch.monitor.Event is Event
    for refused, kind, instead in [
        (lambda: torch.classes.mine.Stack, RuntimeError, "'mine.Stack'"),
        (lambda: torch.classes.load_library("absent.so"), OSError, "absent.so"),
        (lambda: __import__("torch.utils.mkldnn"), ModuleNotFoundError, "call the module as it is"),
    ]:
        try:
            refused()
            raise AssertionError("not refused")
        except kind as error:
            assert instead in str(error), error
    print("done")
"""


def test_programs_find_functions_of_the_compiled_core(tmp_path: Any) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run([sys.executable, "-m", "telegrad", str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_classes_with_rules_of_their_own_must_expand_themselves(tg: Any) -> None:
    class Shifted(tg.distributions.Normal):  # type: ignore[misc]
        def __init__(self, loc: Any) -> None:
            super().__init__(loc, 1.0)

    class Plain(tg.distributions.Normal):  # type: ignore[misc]
        pass

    normal = tg.distributions.Normal
    with pytest.raises(NotImplementedError, match="expand"):
        Shifted(tg.zeros(2))._get_checked_instance(normal)
    made = Plain(tg.zeros(2), tg.ones(2)).expand((3, 2), Plain(tg.zeros(2), 1.0)._get_checked_instance(normal))
    assert type(made) is Plain and tuple(made.batch_shape) == (3, 2)
    np.testing.assert_array_equal(made.mean.numpy(), np.zeros((3, 2)))


def test_conditions_take_no_tensors_and_messages_are_called(tg: Any) -> None:
    checks = import_module("telegrad._programs.private.checks")
    checks._check(True, "never called")
    for check, tensor in ((torch._check, torch.tensor(True)), (checks._check, tg.tensor(True))):
        with pytest.raises(TypeError, match="cond must be a bool, but got a Tensor"):
            check(tensor)
        with pytest.raises(TypeError, match="message must be a callable"):
            check(False, "a text")
        with pytest.raises(RuntimeError, match="a text"):
            check(False, lambda: "a text")


def test_functions_of_networks_in_the_core_take_its_arguments(tg: Any, rng: np.random.Generator) -> None:
    core = import_module("telegrad._programs.private.nn_core")
    values, targets = rng.normal(size=(3, 4)), rng.random((3, 4))

    def results(t: Any, place: Any) -> list[Any]:
        x, y, labels = t.tensor(values), t.tensor(targets), t.tensor([2, 0, 3])
        found = [
            place.elu(x, 2, 3, 0.5),
            *place.adaptive_max_pool2d(x[None], (1, 2)),
            place.reflection_pad1d(x, (1, 2)),
        ]
        for given in ((), (0,), (1,), (2,)):
            found += [place.mse_loss(x, y, *given), place.soft_margin_loss(x, y.sign(), *given)]
            found += [place.nll_loss(x, labels, None, *given), place.binary_cross_entropy(y, y, None, *given)]
        return found

    for ours, theirs in zip(results(tg, core), results(torch, torch._C._nn), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), 1e-9)
