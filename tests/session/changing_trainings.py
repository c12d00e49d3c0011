"""Random trainings whose steps are mostly alike, and change in one way now and then, as text for telegrad and PyTorch.

A step computes a matrix ``h`` of inputs ``x``, parameters ``P``, buffers ``B`` and what steps before it have left in
``S``, a loss ``L`` of it, and gradients, which change the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

BODY: Final = [
    "h = h * P[{i}][0]",
    "h = h * P[{i}][0] + P[{j}][0]",
    "h = t.atan2(h, P[{i}][1])",
    "h = F.layer_norm(h, (4,), P[{i}][0], P[{j}][0])",
    "h = h @ P[{i}].t()",
    "h = F.linear(h, P[{i}], P[{j}][0])",
    "h = t.addcmul(h, P[{i}][0], P[{j}][1], value=p['number'])",
    "h = h.sin() * h",
    "h = h.sin() + h.sin() if p['twice'] else (lambda s: s + s)(h.sin())",
    "h = h * h.detach()",
    "h = h * (P[{i}] * P[{i}]).sum()",
    "h = F.softmax(h, p['dim']) * h",
    "h = h + h.sum(p['dim'], keepdim=True) * p['number']",
    "h = h.clone()\nh[:1] *= 2",
    "h = h * 1\nh.t()[0].add_(P[{i}][0, 0])",
    "a, b = h.chunk(2, 1)\nh = t.cat([b * P[{i}][0, :2], a], 1)",
    "a, b = h.unbind(1)[:2]\nh = h + (a * b).unsqueeze(1)",
    "q = h.unsqueeze(0)\nh = F.scaled_dot_product_attention(q, q @ P[{i}], q)[0]",
    "h = h * B[0][0] * (B[0][0] if p['tied'] else B[1][0])",
    "h = t.lerp(B[0][0], B[0][0] if p['tied'] else B[1][0], P[{i}][0]) + h",
    "h = t.lerp(P[{i}][0], P[{j}][0], 0.25) * h",
    "h = h + F.embedding(I, P[{i}]).sum(0)",
    "h = h + P[{i}][I].sum(0)",
    "S[0] = t.cat([S[0], h.detach()])[-5:]\nh = h + S[0][-2:].sum(0, keepdim=True) * 0.1",
    "h = h.reshape(-1).view(-1, 4) * P[{i}][0]",
    "h = t.maximum(h, x) * 0.7",
    "h = t.stack([h, h * P[{i}][0]]).sum(0)",
    "h = h + (P[{i}].detach() * P[{j}]).sum()",
    "h = F.gelu(h) + F.relu(h - 0.2)",
    "with t.no_grad():\n    k = h * P[{i}].sum()\nh = h + k",
]
LOSSES: Final = ["L = h.sum()", "L = h.square().mean()", "L = (h * x).sum()", "L = F.cross_entropy(h, T[:h.size(0)])"]
PASSES: Final = [
    "L.backward()", "L.backward()", "L.backward()", "L.backward(retain_graph=True)\nL.backward()", "h.backward(x)",
    "h.backward(h.detach())", "L.backward(inputs=[q for q in P if q.requires_grad][:1])",
    "t.autograd.backward([L, h.sum()])", "h.sum().backward(retain_graph=True)\nL.backward()",
]  # fmt: skip
UPDATES: Final = [
    "O.step()", "O.step()", "with t.no_grad():\n    for q in P:\n        q -= 0 if q.grad is None else 0.01 * q.grad",
    "for q in P:\n    q.data = q.data - (0 if q.grad is None else 0.01 * q.grad)", "pass",
]  # fmt: skip
FORGETTING: Final = ["O.zero_grad()", "O.zero_grad(set_to_none=False)", "for q in P:\n    q.grad = None", "pass"]
OPTIMIZERS: Final = ["SGD(ps, lr=0.01)", "SGD(ps, lr=0.01, momentum=0.9)", "AdamW(ps, lr=0.01, foreach=False)"]
CHANGES: Final = [
    "P[0], P[1] = P[1], P[0]", "P[1].requires_grad_(not P[1].requires_grad)", "p['number'] = float(n % 3)",
    "p['number'] = -0.0", "p['number'] = 2", "p['dim'] = n % 2", "p['tied'] = not p['tied']", "p['rows'] = n % 5 + 1",
    "p['twice'] = not p['twice']", "P[1].data = P[0].data", "P[1].data = P[0].data.clone()",
    "P[2].data = P[2].data.t()", "P[2] = P[2].detach().clone().requires_grad_()", "P[2] = P[0]",
    "P[2] = P[0].detach().requires_grad_()", "B[0] = B[1]", "B[1] = B[1].clone()", "B[0].mul_(0.5)", "renew()",
    "p['layout'] = n % 4", "S[0] = S[0][:2]", "P[0].grad = None", "P[1].grad = t.ones_like(P[1])",
    "T.copy_(T.flip(0))", "P[0].data[0] = 0.25", "p['hooked'] = not p['hooked']", "p['fails'] = True",
]  # fmt: skip
STEP: Final = """def step(x, P, B, S, I, T, p, O):
    h = x
    for layer in range({layers}):
{body}
        h = h.clamp(-3, 3)
    if p['hooked'] and h.requires_grad:
        h.register_hook(lambda g: g * 2)
{loss}
    if p['fails']:
        p['fails'] = False
        raise ValueError("in the middle")
    if L.requires_grad:
{forgetting}
{gradients}
{update}
    return L.detach()
"""


class Training(NamedTuple):
    """The text that defines ``step``, the optimizer's, how many steps there are, and the changes before each."""

    text: str
    optimizer: str
    steps: int
    changes: dict[int, list[str]]


def random_training(rng: np.random.Generator) -> Training:
    """Return a training of a few features."""

    def drawn(choices: Sequence[str]) -> str:
        return choices[int(rng.integers(len(choices)))]

    def indented(text: str, depth: int) -> str:
        return "\n".join([" " * depth + line for line in text.splitlines()])

    body = [drawn(BODY).format(i=int(rng.integers(3)), j=int(rng.integers(3))) for _ in range(int(rng.integers(1, 7)))]
    text = STEP.format(
        layers=int(rng.choice([1, 1, 1, 2, 4])), body=indented("\n".join(body), 8), loss=indented(drawn(LOSSES), 4),
        forgetting=indented(drawn(FORGETTING), 8), gradients=indented(drawn(PASSES), 8),
        update=indented(drawn(UPDATES), 8),
    )  # fmt: skip
    steps, rate = int(rng.integers(15, 40)), float(rng.choice([0.1, 0.3]))
    often = drawn(["p['rows'] = n % 5 + 1", "p['layout'] = n // 4 % 4", "pass", "pass", "pass"])
    changes = {n: [often, *[drawn(CHANGES)] * (n > 3 and rng.random() < rate)] for n in range(steps)}
    changes[0].append(drawn(["pass", *CHANGES]))
    return Training(text, drawn(OPTIMIZERS), steps, changes)


class Trainer:
    """Makes the steps of a training on telegrad or on PyTorch, from parameters that are ``nudged`` by so much."""

    def __init__(self, t: Any, training: Training, seed: int, nudged: float = 0.0) -> None:
        self.t, self.training = t, training
        t.set_default_dtype(t.float64)
        draw = np.random.default_rng(seed).standard_normal
        self.names: dict[str, Any] = {
            "t": t, "F": t.nn.functional, "I": t.tensor([1, 3, 1, 0]), "T": t.tensor([0, 3, 1, 2, 0, 1]),
            "P": [t.tensor(draw((4, 4)) * (0.5 + nudged)).requires_grad_() for _ in range(3)],
            "B": [t.tensor(draw((8, 4))) for _ in range(2)], "S": [t.zeros(1, 4)], "renew": self._renew,
            "p": {"number": 0.5, "dim": 1, "tied": True, "twice": True, "rows": 3, "layout": 0, "hooked": False,
                  "fails": False},
        }  # fmt: skip
        self.inputs = [t.tensor(draw((6, 4))) for _ in range(4)]
        exec(compile(training.text, "training", "exec"), self.names)  # noqa: S102  the tests' own programs
        self._renew()

    def run(self) -> list[Any]:
        """Return what all steps have come to, as arrays, None for gradients that are not there."""
        kept: list[Any] = []
        try:
            for number in range(self.training.steps):
                self.names["n"] = number
                for change in self.training.changes[number]:
                    exec(change, self.names)  # noqa: S102
                kept.append(self._step(number))
                kept += [p.detach().clone() for p in self.names["P"]] if number % 8 == 7 else []
            kept += [one for p in self.names["P"] for one in (p.detach(), p.grad)]
            return [one if one is None else one.detach().numpy() for one in [*kept, *self.names["B"], *self.names["S"]]]
        finally:
            self.t.set_default_dtype(self.t.float32)

    def _step(self, number: int) -> Any:
        names, (rows, layout) = self.names, (self.names["p"]["rows"], self.names["p"]["layout"])
        whole = self.inputs[number % 4]
        x = [
            lambda: whole[:rows].clone(), lambda: whole[:rows], lambda: whole[:rows].t().contiguous().t(),
            lambda: whole[:1].expand(rows, 4),
        ][layout]()  # fmt: skip
        try:
            return names["step"](x, *[names[name] for name in "PBSITpO"])
        except ValueError:
            self._renew()
            return None

    def _renew(self) -> None:
        """Begin with new state of the optimizer, and without gradients."""
        for parameter in self.names["P"]:
            parameter.grad = None
        ps = list(dict.fromkeys(self.names["P"]))
        self.names["O"] = eval(f"t.optim.{self.training.optimizer}", {"t": self.t, "ps": ps})  # noqa: S307
