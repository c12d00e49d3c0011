"""Random programs of which something changes between their calls, as text that runs on telegrad and on PyTorch.

A program is made of features. Each has statements that prepare it, statements of the compiled function that make a
matrix ``v`` of another one, and statements that change it between two calls. ``$`` stands for the feature's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

CALLS: Final = 16
COLUMNS: Final = 4
PROLOGUE: Final = """
import collections, dataclasses, functools
nn, F = t.nn, t.nn.functional
def filled(module):
    with t.no_grad():
        for number, p in enumerate(module.parameters()):
            p.copy_(t.linspace(-0.5, 0.5 + 0.1 * number, p.numel()).reshape(p.shape))
    return module
"""


class Feature(NamedTuple):
    """A part of a program: what prepares it, its statements, and what may change it."""

    setup: str
    body: str
    changes: Sequence[str] = ()


FEATURES: Final = [
    Feature("g$ = 1.5", "v = v * g$", ["g$ = 2.5", "g$ = -0.0", "g$ = t.tensor(0.5)", "g$ = True"]),
    Feature(
        "c$ = {'a': 1.0, 'b': [0.5, 2.0]}", "v = v * c$['a'] + c$['b'][0]\nfor w in c$['b']:\n    v = v - w",
        ["c$['a'] = 2.0", "c$['b'][0] += 1", "c$['b'] = [0.25, 1]", "c$['b'] = c$['b'] + c$['b']"],
    ),
    Feature(
        "def f$(a, s=2.0, *, d=1.0):\n    return a * s + d", "v = f$(v)",
        ["f$.__defaults__ = (3.0,)", "f$.__kwdefaults__['d'] = 2.0", "def f$(a, s=2.0, *, d=1.0): return a.cos() * s"],
    ),
    Feature(
        "class C$:\n    k = 2.0\n    s = 1.5\n    @property\n    def p(self):\n        return self.s * 2\n"
        "    def m(self, a):\n        return a * self.s + self.k\no$ = C$()",
        "v = o$.m(v) + o$.p", ["o$.s = 0.5", "C$.k = 3.0", "o$.m = lambda a: a.sin()", "C$.p = 7.0", "o$ = C$()"],
    ),
    Feature(
        "p$ = functools.partial(lambda a, s, d: a * s + d, s=2.0, d=1.0)", "v = p$(v)",
        ["p$.keywords['s'] = 3.0", "p$ = functools.partial(lambda a, s: a - s, s=1.0)"],
    ),
    Feature(
        "@dataclasses.dataclass\nclass D$:\n    s: float = 1.0\nd$ = D$()\nr$ = [1.0, 3.0]",
        "v = v * d$.s + sum(q * 2 for q in r$ if q > 0)", ["d$.s = 2.0", "r$[1] = -3.0", "r$.append(2)"],
    ),
    Feature(
        "l$ = filled(nn.Linear(4, 4))", "v = l$(v)",
        ["l$.weight.data = l$.weight.data * 2", "l$.weight = nn.Parameter(l$.weight.detach() * 0.5)", "l$.bias = None",
         "l$.weight.requires_grad_(not l$.weight.requires_grad)", "l$.weight.data = l$.weight.data.t()",
         "l$.load_state_dict({k: p * 0.5 for k, p in l$.state_dict().items()}, assign=True, strict=False)",
         "l$.register_forward_hook(lambda m, a, o: o * 2)", "l$.forward = lambda a: a * 0.25", "l$.zero_grad()"],
    ),
    Feature(
        "n$ = nn.LayerNorm(4)", "v = n$(v)",
        ["n$.weight = nn.Parameter(n$.weight.detach() * 2)", "n$.eps = 0.5", "n$.weight, n$.bias = n$.bias, n$.weight",
         "n$.weight.data[0] = 3.0"],
    ),
    Feature(
        "s$ = nn.Sequential(filled(nn.Linear(4, 4)), nn.Tanh(), nn.Dropout(0.0))", "v = s$(v)",
        ["s$[1] = nn.ReLU()", "s$.append(nn.Sigmoid())", "s$.eval()", "s$[2].p = 1.0", "s$.requires_grad_(False)"],
    ),
    Feature(
        "b$ = t.zeros(3, 4)\nw$ = b$[1]",
        "with t.no_grad():\n    b$.mul_(0.5).add_(v.sum(0), alpha=0.1)\nv = v + w$\nwith t.no_grad():\n    w$.mul_(2)",
        ["b$.zero_()", "w$ = b$[2]", "w$ = t.ones(4)", "b$ = t.ones(3, 4)"],
    ),
    Feature(
        "e$ = t.ones(4)\nh$ = e$", "v = v * e$ + h$",
        ["h$ = t.zeros(4)", "h$ = e$", "e$ = e$ * 2", "h$ = e$.view(-1)", "e$ = t.ones(1).expand(4)", "e$ = t.ones(1)"],
    ),
    Feature(
        "k$ = [slice(0, 2)]", "v = v + v[:, k$[0]].sum(1, keepdim=True)",
        ["k$[0] = slice(1, 3)", "k$[0] = slice(None, None, 2)", "k$[0] = [0, 0]", "k$[0] = t.tensor([3, 0])"],
    ),
    Feature("", "v = v * (2 if x is y else 1) + (1 if v.shape[0] == v.shape[1] else 2) * v.shape[0]"),
    Feature("", "v = v + t.arange(len(v)).unsqueeze(1) / (1 + len(v))\nfor k in range(len(v)):\n    v = v * 0.5 + k"),
    Feature("", "v = v.reshape(-1).view(v.shape[0], -1) + t.zeros(v.shape).fill_(v.size(0))"),
    Feature("", "v = v + v.sum(0, keepdim=True).expand(v.shape[0], 4) + t.tril(t.ones(v.shape[0], v.shape[0])) @ v"),
    Feature("", "y.data.mul_(1.5)\nv = v * y"),
    Feature("", "z = y.detach()\nz += 0.25\nv = v + z"),
    Feature("", "v = v + 1\nz = v.t()\nz.mul_(0.5)\nv = v + z.t()\nv[0:1] = 0\nout.append(z)"),
    Feature("", "v = v.softmax(-1) * x\nout.append(v[0:1])\nout.append({'v': v, 'n': v.shape})"),
    Feature("m$ = [False]", "with t.set_grad_enabled(m$[0]):\n    z = v.sin()\nv = v + z", ["m$[0] = not m$[0]"]),
    Feature("i$ = [10]", "if v.shape[0] > i$[0]:\n    raise ValueError('too large')", ["i$[0] = 2", "i$[0] = 10"]),
    Feature("a$ = []", "a$.append(1)\nv = v + len(a$)"),
    Feature("", "v = v * (2 if v.square().sum().item() > 3 else 1)"),
    Feature(
        "class T$(collections.namedtuple('T$', 'a b')):\n    __slots__ = ()\n    k = 2.0\n"
        "    def m(self, v):\n        return v * self.a + self.k\nN$ = T$(1.5, 0.5)",
        "v = N$.m(v) + N$.b * N$.k",
        ["T$.k = 3.0", "N$ = T$(0.5, 2.0)", "T$.m = lambda self, v: v - self.b", "N$ = N$._replace(a=2.5)"],
    ),
    Feature(
        "class S$:\n    pass\nZ$ = S$()\nZ$.q = 1.5\nZ$.r = [0.5]", "v = v * Z$.q - Z$.r[0]",
        ["Z$.__dict__ = {'q': 2.5, 'r': [1.0]}", "Z$.q = 0.5", "Z$.r[0] = 2.0", "S$.r = S$.q = 7.0"],
    ),
    Feature(
        "Q$ = t.compile(lambda a: a.sin() * 2 + a)\nV$ = [2.0]\n"
        "@functools.wraps(Q$)\ndef W$(a):\n    return Q$(a) * V$[0] - a",
        "v = W$(v)", ["V$[0] = 0.5", "Q$ = t.compile(lambda a: a.cos() * 3 - a)"],
    ),
    Feature(
        "class H$:\n    def __init__(self, k):\n        self.k = k\n"
        "    def m(self, v):\n        return v * self.k + 1\nclass J$:\n    m = H$(1.5).m",
        "v = J$.m(v)", ["J$.m = H$(0.5).m", "J$.m.__self__.k = 2.0"],
    ),
    Feature(
        "R$ = nn.ModuleList([filled(nn.Linear(4, 4)), nn.Tanh()])", "for layer in R$:\n    v = layer(v) + v * 0.5",
        ["R$._modules = dict(R$._modules)", "R$[-1] = nn.ReLU()", "R$.append(nn.Sigmoid())", "R$.requires_grad_(False)",
         "R$._modules = {'0': nn.Tanh()}", "R$[0]._parameters = {'weight': nn.Parameter(t.ones(4, 4)), 'bias': None}"],
    ),
    Feature("@t.compile\ndef q$(a):\n    return a.sin() * u$[0] + a.cos()\nu$ = [1.0]", "v = q$(v)", ["u$[0] = 2.0"]),
]  # fmt: skip


class Call(NamedTuple):
    """What one call is given, and which statements come before it."""

    rows: int
    layout: str
    other: str
    requires_grad: bool
    mode: str
    has_backward: bool
    changes: list[str]
    seed: int


class Program(NamedTuple):
    """The text that defines the function ``f``, and its calls."""

    text: str
    calls: list[Call]


def random_program(rng: np.random.Generator) -> Program:
    """Return a program of a few features, with calls that are mostly alike."""
    chosen = [FEATURES[int(number)] for number in rng.integers(len(FEATURES), size=int(rng.integers(1, 6)))]
    numbered = [_numbered(feature, number) for number, feature in enumerate(chosen)]
    body = "\n".join(["out = []", "v = x + 0", *[one.body for one in numbered], "return v, out"])
    indented = "\n".join([f"    {line}" for line in body.splitlines()])
    setup = "\n".join([one.setup for one in numbered])
    changes = [change for one in numbered for change in one.changes]
    return Program(f"{PROLOGUE}{setup}\ndef f(x, y):\n{indented}\n", _random_calls(rng, changes))


def _numbered(feature: Feature, number: int) -> Feature:
    setup, body, *changes = [part.replace("$", str(number)) for part in (*feature[:2], *feature.changes)]
    return Feature(setup, body, changes)


def _random_calls(rng: np.random.Generator, changes: list[str]) -> list[Call]:
    call = Call(int(rng.integers(1, 5)), "plain", "whole", bool(rng.integers(2)), "none", False, [], 0)
    calls = []
    for number in range(CALLS):
        if number > 4 and rng.random() < 0.4:
            call = call._replace(**_random_difference(rng))
        made = [str(rng.choice(changes))] if changes and number > 4 and rng.random() < 0.35 else []
        calls.append(call._replace(changes=made, has_backward=bool(rng.integers(2)), seed=int(rng.integers(1 << 30))))
    return calls


def _random_difference(rng: np.random.Generator) -> dict[str, Any]:
    """Return what is different in a call and in those after it."""
    values: dict[str, Sequence[Any]] = {
        "rows": (0, 1, 2, 3, 4, 5),
        "layout": ("plain", "transposed", "expanded", "sliced", "stepped"),
        "other": ("whole", "row", "column", "number", "same", "view", "detached"),
        "requires_grad": (False, True),
        "mode": ("none", "no_grad", "inference_mode"),
    }
    name = str(rng.choice(list(values)))
    return {name: values[name][int(rng.integers(len(values[name])))]}
