"""Less common names of ``autograd``, ``func``, ``amp`` and ``random``: the same programs under telegrad and PyTorch."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from .twins import assert_same, evaluate

PROLOGUE = """
from importlib import import_module
F = import_module(t.__name__ + ".func")
G = import_module(t.__name__ + ".autograd.graph")
C = import_module(t.__name__ + ".utils.checkpoint")
x = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
cube = t.arange(24.0).reshape(2, 3, 4)
seen = []
class Cast(t.autograd.Function):
    @staticmethod
    @t.amp.custom_fwd(device_type="cpu", cast_inputs=t.bfloat16)
    def forward(ctx, a):
        seen.append((a.dtype, t.is_autocast_enabled("cpu")))
        return (a * a).float()
    @staticmethod
    @t.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        seen.append(t.is_autocast_enabled("cpu"))
        return grad
class Kept(Cast):
    @staticmethod
    @t.amp.custom_fwd(device_type="cpu")
    def forward(ctx, a):
        seen.append((a.dtype, t.is_autocast_enabled("cpu"), t.outer(a, a).dtype))
        return a.clone()
class Saved(t.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        result = a.exp()
        ctx.save_for_backward(a, result)
        return result
    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[1]
def backward(y):
    y.sum().backward()
    return x.grad
"""

PROGRAMS = [
    *[
        f"F.rearrange(cube, {pattern})"
        for pattern in (
            "'a b c -> c b a'",
            "'a b c -> a (b c)'",
            "'a b (c d) -> (a d) b c', c=2",
            "'... c -> c ...'",
            "'a ... -> (a ...)'",
            "'a b c -> a 1 b () c'",
            "'a b c -> a b'",
            "'a b c d -> a'",
            "'a b c -> a b c', z=2",
        )
    ],
    "F.rearrange([cube, cube], 'n a b c -> a (n b) c').contiguous()",
    """
    t.manual_seed(3)
    with t.random.fork_rng(devices=[]):
        first = t.rand(2)
    same = t.equal(first, t.rand(2))
    with t.random.fork_rng():
        second = t.rand(2)
    (same, t.equal(second, t.rand(2)))
    """,
    """
    for function in (Cast, Kept):
        with t.autocast("cpu", dtype=t.bfloat16):
            y = function.apply(x)
        backward(y)
        function.apply(x)
    seen
    """,
    """
    h = x * 1
    y = h * h
    G.increment_version(h)
    (h._version, backward(y).tolist())
    """,
    """
    y = x.clone()
    before = y._version
    y.add_(1)
    (before, y._version)
    """,
    """
    net = t.nn.Sequential(t.nn.BatchNorm1d(2))
    F.replace_all_batch_norm_modules_(net)
    (net[0].running_mean, net[0].track_running_stats, F.vmap(net)(t.ones(3, 4, 2)).shape == (3, 4, 2))
    """,
    "F.functionalize(lambda a: a.clone().add_(1))(cube)",
    """
    y = x * 2
    y.grad_fn.register_prehook(lambda grads: seen.append(grads[0].tolist()) or (grads[0] * 10,))
    (backward(y), seen)
    """,
    """
    node = x.view_as(x).grad_fn.next_functions[0][0]
    node.register_prehook(lambda grads: (grads[0] * 2,))
    node.register_hook(lambda inputs, outputs: seen.append((len(inputs), outputs[0].tolist())))
    (backward(x * 3), backward(x * 3), seen, node.variable is x, node.name())
    """,
    """
    y = x * 2
    edge = G.get_gradient_edge(y)
    (t.autograd.grad(y.exp().sum(), [edge]), t.autograd.backward([edge], [t.ones(3)]), x.grad)
    """,
    "t.autograd.grad(x.sum(), [t.ones(2, requires_grad=True)], materialize_grads=True, allow_unused=False)",
    "t.autograd.grad([], [x])",
    "(x * 2).sum().backward(inputs=[])",
    "x.grad = x",
    """
    with t.autograd.set_detect_anomaly(True, check_nan=False):
        inside = t.is_anomaly_enabled(), t.is_anomaly_check_nan_enabled()
    (inside, t.is_anomaly_enabled())
    """,
    """
    z = x * 1
    v = z[0]
    v.mul_(2)
    (z.grad_fn.name(), v.grad_fn.name(), x.output_nr, z.output_nr)
    """,
    """
    with t.autograd.set_multithreading_enabled(False), t.autograd.enforce_grad_layout_policy(False):
        result = backward(x * 2)
    result
    """,
    """
    contexts = lambda: C.create_selective_checkpoint_contexts(lambda ctx, op, *a, **k: C.CheckpointPolicy.MUST_SAVE)
    with C.GraphExecGroup():
        result = backward(C.checkpoint(lambda a: (a * a).exp(), x, use_reentrant=False, context_fn=contexts))
    result
    """,
    "C.get_device_states(cube)",
    """
    h = x * 1
    y = Saved.apply(h)
    h.add_(1)
    backward(y).tolist()
    """,
    """
    h = x * 1
    y = Saved.apply(h)
    x.detach().add_(1)
    (y, backward(y))
    """,
    *[
        f"""
        def product(a):
            seen.append(t.is_autocast_enabled("cpu"))
            return t.outer(a, a).float()
        with t.autocast("cpu", dtype=t.bfloat16):
            y = C.checkpoint(product, x, use_reentrant={kind})
        (backward(y), seen, t.is_autocast_enabled("cpu"))
        """
        for kind in (True, False)
    ],
]


def test_programs_give_what_pytorch_gives(tg: Any) -> None:
    failures = []
    for program in PROGRAMS:
        try:
            assert_same(*evaluate(f"{PROLOGUE}\n{dedent(program).strip()}", tg))
        except AssertionError as error:
            failures.append(f"{program}\n{error}")
    assert not failures, "\n\n".join(failures)
