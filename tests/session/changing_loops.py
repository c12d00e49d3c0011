"""Random programs that make the same calls again and again in loops, with inputs that change from turn to turn.

A turn is text that runs on telegrad and on PyTorch: the statements of a few features, in layers. Each computes a matrix
``v`` of another one, of the turn's inputs ``x`` and ``y``, weights ``w``, numbers ``p`` and what turns before it have
left in ``c``. ``out`` takes what is looked at much later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

LARGEST: Final = 6
PROLOGUE: Final = "F = t.nn.functional\ndef turn(x, y, w, p, c, out):\n    v = x\n"
FREE: Final = [
    "a = v[:3].sum()\nv = v + a + v.sum(0)",
    "out.append(v[-2:])\nv = v * 1.5 + v[-2:].sum()",
    "a = x[:2]\nv = v + a.sum() * x.sum()\nout.append(a)",
    "out.append(v.reshape(-1))\nv = v * 1.5",
    "out.append(v.t().reshape(-1))\nv = v.cos()",
    "out.append(v.flatten().sin())",
    "out.append(x.ravel())",
    "a, b = (v.t() * 2).t().unsqueeze(-1).chunk(2, -1)[:1] * 2\nv = a.squeeze(-1) + b.squeeze(-1)",
    "v = F.softmax(v, -1) @ v.t() @ v",
    "v = t.matmul(v[None], v.t()).squeeze(0) @ v",
    "v = t.matmul(v, v.t()[None])[0] @ v",
    "v = v + t.vstack([x, v])[:2].sum()",
    "v = v + t.hstack([v, y.expand_as(v)]).sum()",
    "v = v + v.tile(2).sum()",
    "v = v + t.kron(v, v).mean()",
    "v = F.glu(t.cat([v, v], 1), 1)",
    "v = v + F.mse_loss(v, y.expand_as(v))",
    "v = F.layer_norm(v.t().contiguous().t(), v.shape[1:])",
    "v = v * y + v",
    "v = (v - y).sin() * 0.5 + x",
    "v = t.where(v > 0, v, y * 0.5)",
    "v = v + (y * 1.5).sum()",
    "v = (v @ v.t()).tanh() @ v",
    "v = v + (v.t() @ v).sum(0) * 0.1",
    "v = v + v.sum(0)[:1] * y.sum().tanh()",
    "v = v.t().sin().t() + v",
    "v = t.cat([v[:1], v[1:]]) * 0.9",
    "a, b = v.max(1, keepdim=True)\nv = v - a * 0.5 + b.size(0)",
    "a, b = v.topk(1, 1)\nv = v + a",
    "a, b = t.stack([v, v * y]).unbind()\nv = a - b",
    "out.append(v.contiguous())\nv = v + 1",
    "out.append(x.contiguous())",
    "out.append(x.t().contiguous())",
    "out.append(x.to(t.float64))",
    "out.append(v.double())\nv = v.float().double()",
    "v = v.view(-1).view_as(v)",
    "out.append(y.expand_as(v))\nv = v + out[-1]",
    "out.append(x.squeeze())",
    "v = v + v.squeeze(0).sum(-1).sum() * 0.1",
    "v = v + x.type_as(v)",
    "v = F.gelu(v) + F.relu(v) * F.softplus(v)",
    "v = F.normalize(v, dim=1)",
    "v = v + t.full_like(y, 2.0)",
    "v = v + t.zeros(1)",
    "v = v * t.ones((), dtype=t.float32)",
    "c[1] = c[1] * 0.5 + v.sum()\nv = v + c[1] * 0.01",
    "c[2] = t.cat([c[2], v])[-5:]\nv = v + c[2].mean(0)",
    "v = v.gather(1, v.argmax(1, keepdim=True)) + v",
    "v = v.sort(1)[0] * 0.5",
    "with t.no_grad():\n    v = v * w[0].sum()",
    "v = v.detach() * 1.5",
    "v = v.masked_fill(v > 1, 0.25)",
    "v = v.clamp(-1, 1)",
    "v = v + v.var(1, keepdim=True)",
    "v = (v + 1j).abs()",
    "v = v.to(x.dtype)",
    "v = v.to(y.dtype) + y",
    "v = v.double()",
    "v = v * v.isnan().logical_not()",
    "v = v.nan_to_num()",
    "v = t.einsum('ij,kj->ik', v, v) @ v * 0.1",
    "v = t.maximum(v, y) - t.minimum(v, x)",
    "v = F.linear(v, v).tanh() @ v",
    "v = v.unsqueeze(0).expand(2, -1, -1).sum(0)",
    "v = t.broadcast_tensors(v, y)[1] + v",
    "v = t.outer(v.sum(1), v.sum(0)).tanh()",
    "v = F.scaled_dot_product_attention(v[None], v[None], v[None])[0]",
    "v = t.baddbmm(v[None], v[None] @ v.t()[None], v[None])[0].tanh()",
    "v = v.permute(1, 0).contiguous().permute(1, 0)",
    "v = v.diagonal().sum() + v",
    "v = v.tril() + v.triu()",
    "v = t.addmm(v, v @ v.t(), v).tanh()",
    "v = t.mv(v, v[0]).sum() + v",
    "v = t.lerp(v, x.double(), 0.5)",
]
OTHERS: Final = [
    "c[0] = c[0][1:]",
    "v = v + t.tensor(0.5)",
    "v = v + t.zeros_like(v).fill_(0.5)",
    "v = t.cat([v, y.expand_as(v)])[:v.size(0)] + 1",
    "a, b = v.t().split([1, v.size(1) - 1])\nv = t.cat([b, a]).t()",
    "a, *b = v.chunk(2, 1)\nv = v + a.sum() * len(b)",
    "v = t.stack([v] * p['length']).sum(0)",
    "v = t.cat([v, v * 2] * p['length'], 1).narrow(1, 0, v.size(1))",
    "out.append(x.reshape(-1))",
    "v = v.reshape(-1).sin().reshape(v.shape)",
    "v = v.t().flatten().cos().view(v.shape)",
    "out.append(y.expand(v.shape))",
    "v = v.squeeze().cos().reshape(v.shape)",
    "v = v * p['number']",
    "v = v.add(y, alpha=p['number']) * 0.5",
    "v = v + p['number']\nv = v - 0.5",
    "v = v ** p['power']",
    "v = v + v.sum(p['dim'], keepdim=True)",
    "v = v.roll(p['place'], 0)",
    "v = v + w[0][p['place']]",
    "v = v + v[:, p['dim']:].mean()",
    "v = v.flip(p['dim']).softmax(p['dim'])",
    "v = v.sum(p['dim']).cumsum(0).sum() + v",
    "v = F.pad(v, (0, 4 - v.size(1))) @ w[1] @ w[0]\nv = F.layer_norm(v, (4,))[:, :x.size(1)]",
    "v = v @ w[2][:v.size(1)] @ w[3][:, :v.size(1)]",
    "v = v + t.ones(x.shape[1])",
    "v = v + t.arange(v.size(0)).unsqueeze(1)",
    "x.mul_(0.75)\nv = v + x",
    "y.add_(0.25)\nv = v + y",
    "w[0].mul_(0.99)\nv = v + w[0][0, 0]",
    "z = v + 0\nz[0:1] = 0.5\nv = v + z",
    "z = v.clone()\nz.t().mul_(2)\nv = z",
    "z = v * 1\nz[:, :1].add_(1)\nout.append(z)\nv = z * 0.5",
    "c[0] = t.cat([c[0], v.mean().reshape(1)])\nv = v + c[0].sum() * 0.01",
    "c[3].append(v)\ndel c[3][:-3]\nv = v + c[3][0].sum() * 0.01",
    "c[0][-1:].mul_(0.5)\nv = v + c[0][-1]",
    "c[1].mul_(0.5).add_(v.mean().detach())\nv = v + c[1].sin()",
    "if p['reads']:\n    v = v[: int(v.abs().sum().item()) % 3 + 1]\n    x = y = v",
    "if p['reads']:\n    v.sum().item()",
    "if p['fails']:\n    v = v + w[0][t.tensor([9])]",
    "if p['fails']:\n    v = v @ t.ones(9, 9)",
    "v = v[w[4][:1]] + v",
    "v = F.embedding(w[4], w[0]).sum() + v",
    "v = v.repeat(2, 1)[:v.size(0)]",
    "v = v.movedim(0, 1).reshape(v.size(1), -1).t()",
    "v = v.index_select(0, t.tensor([0] * v.size(0)))",
    "v = v[t.arange(v.size(0) - 1, -1, -1)]",
    "c[4][:, :v.size(1)] = v[-1:].detach()\nv = v + c[4][:1, :v.size(1)]",
    "c[4].index_copy_(0, t.tensor([p['length']]), t.ones(1, 4) * v.sum().detach())\nv = v + c[4].sum()",
    "c[4] = c[4].roll(1, 0)\nv = v + c[4][0, 0]",
    "c[4][p['place']] = v.sum().detach()\nv = v + c[4].mean()",
    "c[4] = c[4][c[4].sum(1).argsort()]\nv = v + c[4][-1, 0]",
    "c[2] = c[2][c[2].sum(1).argsort(descending=True)] if len(c[2]) else c[2]\nv = v + c[2].sum() * 0.01",
    "z = t.empty_like(v)\nt.mul(v, 2, out=z)\nv = z + v",
    "t.sin(v, out=v) if not v.requires_grad else None\nv = v * 1.5",
    "z = v.detach()\nv = v * 2\nz.mul_(0.5)",
    "z = v.clone().detach()\nu = z.view(-1)\nu[:1] = 0.25\nout.append(u)\nv = v + z",
    "z = t.zeros(5, 4, dtype=v.dtype)\nz[:v.size(0), :v.size(1)] = v.detach()\nv = v + z.sum()\nout.append(z[1])",
    "with t.autocast('cpu', dtype=t.bfloat16, enabled=p['reads']):\n    v = v + (v @ v.t()).sum().to(v.dtype)",
    "with t.set_grad_enabled(p['fails']):\n    v = v * w[0].sum()",
    "with t.inference_mode(p['reads']):\n    z = v.detach() * 2\nv = v + z.clone()",
    "t.set_default_dtype(t.float32 if p['reads'] else t.float64)\nv = v + t.ones(1) * 0.3 + t.arange(2.).sum()",
    "z = w[1].data\nz.mul_(0.5)\nv = v + w[1].sum()",
    "w[1].data = (w[1].data * 0.5).t()\nv = v + w[1][0, 1]",
    "w[1], w[0] = w[1], w[0]\nv = v + w[p['length'] % 2][0].sum()",
    "u = (v + 1j * v).conj()\nv = v + (u.imag * 0.5 + u.real)",
    "out.append(t.view_as_real(v + 1j * v)[..., 1])",
    "u = -(v + 1j * y).conj().imag\nv = v + u.sum()",
    "out.append(v.unfold(0, 1, 1))\nv = v + out[-1].sum()",
    "out.append(t.as_strided(v.contiguous(), (1,), (1,)) if v.numel() else v)",
    "out += list(v.unbind(1))[:2]\nv = v * 0.75",
    "out += [v[0:1], v[0:1]]",
    "out += list(v.split(2))\nv = v * 0.75",
    "a = v.numpy(force=True) if p['reads'] else None\nv = v + (float(a.sum()) if a is not None else 0.5)",
    "v = v + t.full((), p['number'], dtype=t.float64)",
    "v = v + t.scalar_tensor(p['number'], dtype=t.float64)",
    "v = t.where(v > p['number'], v, p['number'])",
    "v = v.clamp_min(p['number']) * 0.5 + v * 0.5",
    "v = v.masked_fill(v > 0, p['number']) * 0.5",
    "v = t.full_like(v, p['number']) + v",
    "v = F.threshold(v, 0.1, p['number']) + v",
    "v = F.pad(v, (1, 1), value=p['number'])[:, 1:-1] + v",
    "del out[:-1]",
    "q = [v * k for k in range(3)]\ndel q[1]\nv = q[0] + q[1]",
    "k = F.conv1d(v[None, None, :, 0], w[0][None, :1, :1], padding=1)\nv = v + k.sum()",
    "v = v.to(memory_format=t.contiguous_format) + v[None, None].contiguous(memory_format=t.channels_last)[0, 0]",
    "v = v + x.T.reshape(-1)[:1] * x.reshape(-1)[-1:]",
    "v = v.add(y.t().contiguous().t()) * 0.5",
    "v = (v.t() + v.t()).t()",
    "v = t.cumsum(v, p['dim']) * 0.3",
    "v = v.squeeze(0).unsqueeze(0) if v.size(0) == 1 else v + 0.5",
    "v = v.where(v.bool(), v)",
    "b = v > 0\nv = v * b + b.sum() + b.any()",
    "i = v.argmax(0)\nv = v + (i * p['number'] if not isinstance(p['number'], bool) else i)",
    "i = t.arange(v.size(1)) // p['length']\nv = v + i",
    "i = (v > 0).long()\nv = v + (i / 2) + i ** 2 + (i << 1)",
]
RANDOM: Final = [
    "v = F.dropout(v, 0.5)",
    "v = v + t.rand(v.shape)",
    "v = v + t.randn_like(v)",
    "v = v + t.rand(2).sum()",
]


class Turn(NamedTuple):
    """What one turn is given, and what is done around it."""

    rows: int
    columns: int
    layout: str
    dtype: str
    other: str
    mode: str
    default: str
    requires_grad: bool
    numbers: dict[str, Any]
    end: str
    drops: bool


class Program(NamedTuple):
    """The text that defines ``turn``, and the turns; ``is_exact`` says whether PyTorch comes to about the same."""

    text: str
    turns: list[Turn]
    is_exact: bool


_VALUES: Final[dict[str, Sequence[Any]]] = {
    "rows": (0, *range(1, LARGEST), *range(1, LARGEST)),
    "columns": range(1, 5),
    "layout": ("plain", "plain", "transposed", "expanded", "sliced", "stepped"),
    "dtype": ("float64", "float64", "float32"),
    "other": ("whole", "row", "column", "number", "vector", "same", "view", "transposed", "detached"),
    "mode": ("none", "none", "no_grad", "inference_mode", "autocast"),
    "default": ("float64", "float32"),
    "requires_grad": (False,) * 9 + (True,),
    "end": ("none", "flush", "none", "read", "flush", "backward"),
    "drops": (False, True),
}
_NUMBERS: Final[dict[str, Sequence[Any]]] = {
    "length": (1, 2, 3),
    "number": (0.5, -0.0, 0.0, 2, True, float("nan"), 1 << 40),
    "power": (2, 1, 0.5, 3),
    "dim": (0, 1, -1),
    "place": (0, 1, 2, -1),
    "reads": (False, True),
    "fails": (False, True),
}


def random_program(rng: np.random.Generator) -> Program:
    """Return a program whose turns are mostly alike, or change in one way all the time."""
    is_random, others = rng.random() < 0.15, float(rng.choice([0.0, 0.05, 0.15, 0.5]))
    rest = [*OTHERS, *RANDOM * 8] if is_random else OTHERS
    chosen = [str(rng.choice(rest if rng.random() < others else FREE)) for _ in range(int(rng.integers(2, 11)))]
    before, after = [str(rng.choice([*FREE, *OTHERS])) if rng.random() < 0.3 else "pass" for _ in range(2)]
    lines = "\n".join(chosen).splitlines()
    layers = int(rng.integers(1, 4)) if rng.random() < 0.5 else max(int(rng.integers(130, 300)) // (3 * len(lines)), 1)
    body = "\n".join([f"        {line}" for line in [*lines, "v = v.clamp(-3, 3)"]])
    before, after = ["\n".join([f"    {line}" for line in one.splitlines()]) for one in (before, after)]
    text = f"{PROLOGUE}{before}\n    for layer in range({layers}):\n{body}\n{after}\n    out.append(v)\n"
    turns = _random_turns(rng, 24 if layers > 6 else 40)
    if ".data = " in text:  # what is computed of a call that fails is never there, and would be no data for later turns
        turns = [turn._replace(numbers=turn.numbers | {"fails": False}) for turn in turns]
    is_double = "float" not in text and all([turn.dtype == turn.default == "float64" for turn in turns])
    is_exact = is_double and layers <= 3 and not is_random and all([turn.mode != "autocast" for turn in turns])
    return Program(text, turns, is_exact)


def _random_turns(rng: np.random.Generator, count: int) -> list[Turn]:
    numbers = {name: values[0] for name, values in _NUMBERS.items()}
    turn = Turn(3, 4, "plain", "float64", "whole", "none", "float64", False, numbers, "none", False)
    for name in _VALUES:
        if rng.random() < 0.2:
            turn = turn._replace(**_drawn(rng, name))
    turn = turn._replace(end=str(rng.choice(["none", "flush", "flush", "read"])))
    often = [
        str(name) for name in rng.choice(["rows", "columns", "rows", "layout", "other"], size=int(rng.integers(3)))
    ]
    rate, turns = float(rng.choice([0.0, 0.05, 0.15])), []
    for _ in range(count):
        names = [*often] + ([str(rng.choice(list(_VALUES)))] if rng.random() < rate else [])
        for name in names:
            turn = turn._replace(**_drawn(rng, name))
        if rng.random() < rate:
            name = str(rng.choice(list(_NUMBERS)))
            turn = turn._replace(numbers=turn.numbers | {name: _of(rng, _NUMBERS[name])})
        turns.append(turn)
        turn = turn._replace(numbers=turn.numbers | {"fails": False})
    return turns


def _drawn(rng: np.random.Generator, name: str) -> dict[str, Any]:
    return {name: _of(rng, _VALUES[name])}


def _of(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


class Runner:
    """Runs the turns of a program on telegrad or on PyTorch, on numbers that differ by a share of about ``nudged``."""

    def __init__(self, t: Any, program: Program, seed: int, name: str = "loop", nudged: float = 0.0) -> None:
        self.t, self.program = t, program
        rng, noise = np.random.default_rng(seed), np.random.default_rng(seed + 1)

        def draw(size: tuple[int, ...]) -> Any:
            return rng.standard_normal(size) * (1 + nudged * noise.standard_normal(size))

        t.set_default_dtype(t.float64)
        t.manual_seed(5)
        self.large = {dtype: t.tensor(draw((16, 16)), dtype=getattr(t, dtype)) for dtype in ("float64", "float32")}
        self.others = t.tensor(draw((16, 16)))
        self.w = [t.tensor(draw(s)) for s in [(4, 4), (4, 4), (4, 8), (8, 4)]] + [t.tensor([0, 0, 0])]
        self.c: list[Any] = [t.zeros(1) + nudged, t.zeros(()) + nudged, t.zeros(0, 4), [t.zeros(1)], t.zeros(4, 4)]
        self.names: dict[str, Any] = {"t": t}
        text = program.text.replace("v > 0", f"v > {nudged!r}")  # what is nearly 0 may be either side of it
        exec(compile(text, name, "exec"), self.names)  # noqa: S102  the tests' own programs

    def run(self) -> list[Any]:
        """Return what the turns have come to, as arrays and words."""
        kept: list[Any] = []
        try:
            for turn in self.program.turns:
                kept.append(self._turn(turn))
                if turn.drops:
                    del kept[-1][1::2]
        finally:
            self._set_default("float32")
        return [_told(one) for one in [*kept, self.c, self.w, list(self.large.values()), self.others]]

    def _turn(self, turn: Turn) -> list[Any]:
        t, out = self.t, []
        self._set_default(turn.default)
        self.w[0].requires_grad_(turn.requires_grad)
        self.w[0].grad = None
        try:
            with t.no_grad():
                x, y = self._inputs(turn)
            with self._mode(turn.mode):
                self.names["turn"](x, y, self.w, turn.numbers, self.c, out)
            self._end(turn, out)
        except (ValueError, RuntimeError, IndexError, TypeError) as error:
            self.c[:] = [t.zeros(1), t.zeros(()), t.zeros(0, 4), [t.zeros(1)], t.zeros(4, 4)]
            return ["failed", isinstance(error, IndexError)]
        self.c[:] = [[e.detach() for e in one] if isinstance(one, list) else one.detach() for one in self.c]
        return [one.detach() for one in out]

    def _set_default(self, name: str) -> None:
        """Set the default type once all calls were executed: a server in this process has the same one at once."""
        wanted = getattr(self.t, name)
        if wanted is not self.t.get_default_dtype():
            self.others.sum().item()
            self.t.set_default_dtype(wanted)

    def _mode(self, name: str) -> Any:
        if name == "autocast":
            return self.t.autocast("cpu", dtype=self.t.bfloat16)
        return self.t.enable_grad() if name == "none" else getattr(self.t, name)()

    def _end(self, turn: Turn, out: list[Any]) -> None:
        if turn.numbers["fails"] or turn.end == "read":
            out[-1].sum().item()
        elif turn.end == "flush" and hasattr(out[-1], "_session"):
            out[-1]._session.flush()
        elif turn.end == "backward" and out[-1].requires_grad:
            out[-1].square().sum().backward()
            out.append(self.w[0].grad.clone())

    def _inputs(self, turn: Turn) -> tuple[Any, Any]:
        n, m, large, others = turn.rows, turn.columns, self.large[turn.dtype], self.others
        x = {
            "plain": lambda: large[:n, :m].clone(), "transposed": lambda: large[:m, :n].clone().t(),
            "expanded": lambda: large[:1, :m].expand(n, m), "sliced": lambda: large[1 : n + 1, 2 : m + 2],
            "stepped": lambda: large[: 2 * n : 2, :m],
        }[turn.layout]()  # fmt: skip
        y = {
            "whole": lambda: others[:n, :m], "row": lambda: others[:1, :m], "column": lambda: others[:n, :1].clone(),
            "number": lambda: others[0, 0], "vector": lambda: others[0, :m].clone(), "same": lambda: x,
            "view": lambda: x[:], "transposed": lambda: others[:m, :n].t(), "detached": lambda: x.detach(),
        }[turn.other]()  # fmt: skip
        return x, y


def _told(value: Any) -> Any:
    """Return values as lists that are compared, with arrays for tensors."""
    if isinstance(value, list):
        return [_told(one) for one in value]
    if isinstance(value, bool | str):
        return value
    dtype, value = str(value.dtype).partition(".")[2], value.detach().clone()
    return tuple(value.shape), dtype, (value.float() if dtype == "bfloat16" else value).numpy()
