"""PyTorch's published examples of compile and those of the seeds, run as they are, print what they print there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ..end_to_end.server_process import clean_environment

EXAMPLES = """
import time

import torch
import torch._dynamo.config
import torch._inductor.config
import torch._logging
import torch.nn as nn

torch.manual_seed(0)
torch._logging.set_logs(graph_breaks=True, recompiles=True)
torch._dynamo.config.cache_size_limit = 16
torch._inductor.config.debug = True
with torch._dynamo.config.patch(suppress_errors=True):
    pass


def foo(x, y):
    return torch.sin(x) + torch.cos(y)


opt_foo1 = torch.compile(foo)
x, y = torch.randn(10, 10), torch.randn(10, 10)
print(torch.equal(opt_foo1(x, y), foo(x, y)))


@torch.compile
def opt_foo2(x, y):
    a = torch.sin(x)
    b = torch.cos(y)
    return a + b


print(torch.allclose(opt_foo2(x, y), foo(x, y)))


class MyModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(100, 10)

    def forward(self, x):
        return nn.functional.relu(self.lin(x))


mod = MyModule()
opt_mod = torch.compile(mod)
print(opt_mod(torch.randn(10, 100)).shape, type(opt_mod).__name__)
mod.compile()
print(list(dict(opt_mod.named_parameters())))


def bar(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:  # the break
        b = b * -1
    return x * b


inp1, inp2 = torch.ones(10), torch.ones(10)
explanation = torch._dynamo.explain(bar)(inp1, inp2)
lines = [frame.lineno for frame in explanation.break_reasons[0].user_stack]
print(explanation.graph_count, explanation.graph_break_count, lines)
print(str(explanation).splitlines()[:3])
try:
    torch.compile(bar, fullgraph=True)(inp1, inp2)
except torch._dynamo.exc.Unsupported as error:
    print("Unsupported")
opt_bar = torch.compile(bar)
for _ in range(4):
    print(opt_bar(inp1, inp2).sum().item(), opt_bar(inp1, -inp2).sum().item())


@torch.compile
def f(x):
    y = x.sin()
    print("hi")  # graph break
    return y.cos()


explained = torch._dynamo.explain(f)(torch.randn(4))
print(explained.graph_count, explained.graph_break_count, explained.op_count)


def timed(fn):
    start = time.perf_counter()
    result = fn()
    torch.cpu.synchronize()
    return result, time.perf_counter() - start


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.Conv2d(channels, 4, 3, padding=1, bias=False))

    def forward(self, x):
        return torch.cat([x, self.layers(x)], 1)


model = nn.Sequential(nn.Conv2d(3, 4, 3), Block(4), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10))
opt = torch.optim.Adam(model.parameters())


def train(mod, data):
    opt.zero_grad(True)
    pred = mod(data[0])
    loss = torch.nn.CrossEntropyLoss()(pred, data[1])
    loss.backward()
    opt.step()
    return loss


train_opt = torch.compile(train, mode="reduce-overhead")
losses = []
for _ in range(6):
    loss, seconds = timed(lambda: train_opt(model, (torch.randn(4, 3, 8, 8), torch.randint(10, (4,)))))
    losses.append(loss.item())
print("losses", *losses)
for mode in ("default", "reduce-overhead", "max-autotune", None):
    compiled = torch.compile(model.eval(), mode=mode, dynamic=True)
    with torch.no_grad():
        print(compiled(torch.ones(2, 3, 8, 8)).shape)
batch = torch.ones(5, 3, 8, 8)
torch._dynamo.mark_dynamic(batch, 0)
torch._dynamo.maybe_mark_dynamic(batch, 1)
torch._dynamo.mark_static(batch, 2)
print(torch.compile(model)(batch).shape)
torch._dynamo.reset()
torch.compiler.reset()
print(torch._dynamo.optimize("eager")(foo)(x, y).shape, torch._dynamo.optimize()(foo)(x, y).shape)


@torch.compiler.disable(recursive=False)
def complex_function(x):
    return x * (2 if not torch.compiler.is_compiling() else 2)


print(torch.compile(lambda x: complex_function(x) + 1)(torch.ones(2)).tolist(), torch.compiler.is_dynamo_compiling())
torch.compiler.cudagraph_mark_step_begin()
with torch.compiler.set_stance("force_eager"):
    print(torch.compile(foo)(x, y).shape)


@torch.compiler.allow_in_graph
def allowed(x):
    return x.sin()


print(torch.compile(allowed, backend="aot_eager")(torch.zeros(1)).item(), sorted(torch.compiler.list_backends()) != [])


def net(a, k):
    return torch.nn.functional.gelu(a @ a) * k


compiled = torch.compile(net, dynamic=False)
for n, k in ((4, 1.0), (4, 2.0), (8, 2.0), (4, 3.0)):
    a = torch.linspace(-1, 1, n * n).view(n, n)
    print("%.5f" % compiled(a, k).sum().item())
"""

BACKENDS = """
from typing import List

import torch
from torch._dynamo.backends.registry import register_backend
from torch._dynamo.testing import CompileCounter, EagerAndRecordGraphs
from torch._dynamo.utils import counters


def custom_backend(gm: torch.fx.GraphModule, example_inputs: List[torch.Tensor]):
    print("custom backend:", *[node.op for node in gm.graph.nodes][:-1])
    print([tuple(one.shape) for one in example_inputs], "def forward(self" in gm.code)
    return gm.forward


def bar(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


torch._dynamo.reset()
opt_bar = torch.compile(bar, backend=custom_backend)
a, b = torch.linspace(-1, 1, 10), torch.linspace(-3, 1, 10)
for inputs in ((a, b), (a, b), (a, -b), (a, -b)):
    print(torch.allclose(opt_bar(*inputs), bar(*inputs)))


@register_backend
def my_compiler(gm, example_inputs):
    print("my_compiler", len(example_inputs))
    return gm


torch.compile(torch.nn.Linear(3, 2), backend="my_compiler")(torch.ones(1, 3))
print("my_compiler" in torch.compiler.list_backends())
counter, counters_before = CompileCounter(), counters.clear()
fn = torch.compile(lambda x: x.relu() * x.shape[0], backend=counter)
for size in (3, 4, 5, 6, 1, 1):
    fn(torch.ones(size))
    print(counter.frame_count, counter.op_count, end="; ")
print(counters["stats"]["unique_graphs"], len(counters["graph_break"]))
keeper = EagerAndRecordGraphs()
torch.compile(lambda x, y: (x.sin() @ y).sum(), backend=keeper)(torch.ones(2, 2), torch.ones(2, 2))
print([(node.op, str(node.target)) for node in keeper.graphs[0].graph.nodes if node.op == "placeholder"])


def failing(gm, example_inputs):
    raise ValueError("unsupported graph")


try:
    torch.compile(bar, backend=failing)(a, b)
except torch._dynamo.exc.BackendCompilerFailed as error:
    print(type(error.inner_exception).__name__, "unsupported graph" in str(error))
torch._dynamo.config.suppress_errors = True
print(torch.allclose(torch.compile(bar, backend=failing)(a, b), bar(a, b)))
"""
PRINTED = """
custom backend: placeholder placeholder call_function call_function call_function call_method call_function
[(10,), (10,)] True
custom backend: placeholder placeholder call_function call_function
[(10,), (10,)] True
True
True
custom backend: placeholder placeholder call_function
[(10,), (10,)] True
True
True
my_compiler 3
True
1 2; 2 4; 2 4; 2 4; 3 6; 3 6; 3 0
[('placeholder', 'L_x_'), ('placeholder', 'L_y_')]
ValueError True
True
"""
"""What PyTorch prints."""


def _run(*command: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, cwd=folder, check=False,
        env=clean_environment(TELEGRAD_DEVICES="cpu"),
    )  # fmt: skip


def test_examples_print_what_they_print_under_pytorch(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(EXAMPLES)
    done = _run("-m", "telegrad", program, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    line = EXAMPLES.splitlines().index("    if b.sum() < 0:  # the break") + 1
    assert f"Graph break in user code at {program}:{line}" in done.stderr
    printed = done.stdout.splitlines()
    losses = printed.pop(next(n for n, text in enumerate(printed) if text.startswith("losses"))).split()[1:]
    assert len(losses) == 6 and all(float(loss) > 0 for loss in losses)
    assert printed == [
        "True", "True", "torch.Size([10, 10]) OptimizedModule", "['_orig_mod.lin.weight', '_orig_mod.lin.bias']",
        f"2 1 [{line}]", "['Graph Count: 2', 'Graph Break Count: 1', 'Op Count: 6']", "Unsupported",
        *["5.0 5.0"] * 4, "hi", "2 1 2", *["torch.Size([2, 10])"] * 4, "torch.Size([5, 10])",
        "torch.Size([10, 10]) torch.Size([10, 10])", "[3.0, 3.0] False", "torch.Size([10, 10])", "0.0 True",
        *printed[-4:],
    ]  # fmt: skip
    import torch

    for text, (n, k) in zip(printed[-4:], ((4, 1.0), (4, 2.0), (8, 2.0), (4, 3.0)), strict=True):
        a = torch.linspace(-1, 1, n * n).view(n, n)
        assert abs(float(text) - (torch.nn.functional.gelu(a @ a) * k).sum().item()) < 1e-3


def test_backends_of_a_program_are_called_as_under_pytorch(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(BACKENDS)
    done = _run("-m", "telegrad", "program.py", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, PRINTED.lstrip()), done.stderr
