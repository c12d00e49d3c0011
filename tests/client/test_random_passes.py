"""Random graphs with functions, hooks, checkpoints and writes: gradients, and gradients of these, are PyTorch's."""

from __future__ import annotations

import random
from typing import Any

import pytest

from .pass_programs import PROLOGUE
from .twins import assert_same, evaluate

PROGRAMS = 24
SETUP = """
checkpoint = t.utils.checkpoint.checkpoint
graph, calls, seen, kept = t.autograd.graph, [], [], []
def total(g):
    return None if g is None else g.detach().sum()
def note(tag, factor=None):
    def hook(g):
        seen.append((tag, total(g)))
        return None if factor is None else g * factor
    return hook
def note_leaf(tag):
    return lambda p: seen.append((tag, total(p.grad), p.grad.requires_grad))
def note_node(tag):
    return lambda before, after: seen.append((tag, [total(g) for g in before], [total(g) for g in after]))
def note_all(tag):
    return lambda grads: seen.append((tag, [total(g) for g in grads]))
def pack(value):
    seen.append(("pack", total(value)))
    return value
x = t.linspace(-1.3, 1.1, 6, dtype=t.float64).reshape(2, 3).requires_grad_()
w = t.linspace(0.4, 1.7, 6, dtype=t.float64).reshape(2, 3).requires_grad_()
u = t.linspace(-0.9, 0.8, 6, dtype=t.float64).reshape(2, 3)
"""
STEPS = (
    "{out} = {a}.sin() * {b}",
    "{out} = {a} * {b} + {a}",
    "{out} = {a}.detach() * {b}",
    "{out} = t.where({a} > 0, {a}, {b})",
    "{out} = {a}.expand(2, 2, 3).sum(0) * 0.3",
    "{out} = {a}.t().contiguous().t() * {b}.flip(0)",
    "rows = {a}.unbind(0)\n{out} = t.stack([rows[0] * rows[1], rows[1]])",
    "{out} = {a} + 0\n{out}.add_({b}).mul_(0.5)",
    "{out} = {a} * 0.5\n{out}[0].mul_(2)\n{out}[:, 1] = {b}[:, 0]",
    "{out} = {a} * 1.5\nwith t.no_grad():\n    doubled = {out} * 2\n{out} = {out} + doubled",
    "{out} = Square.apply({a}.sin())",
    "{out} = Exp.apply({a}.sin())",
    "{out}, other, _ = Both.apply({a}, {b}, 2)\n{out} = {out} * other",
    "{out} = AddOne.apply({a} * 1)",
    "{out} = checkpoint(lambda p, q: (p * q).tanh() + p, {a}, {b}, use_reentrant=False)",
    "{out} = checkpoint(lambda p: (p * w).tanh() * x, {a}, use_reentrant=False)",
    "with graph.saved_tensors_hooks(pack, lambda value: value):\n    {out} = {a} * {b}.sin().exp()",
    "{out} = {a} * 2\nif {out}.requires_grad: {out}.register_hook(note('{out}'))",
    "{out} = {a} * 2\nif {out}.requires_grad: {out}.register_hook(note('{out}', 0.5))",
    "{out} = {a}.sin().exp()\nif {out}.grad_fn is not None: {out}.grad_fn.register_hook(note_node('{out}'))",
    "{out} = {a} * 2\nmade = {out} - {b}\n"
    "if {out}.requires_grad: graph.register_multi_grad_hook([{out}, made], note_all('{out}'))\n{out} = {out} * made",
    "x.register_post_accumulate_grad_hook(note_leaf('{out}'))\n{out} = {a} * x",
    "w.register_hook(note('{out}', 2.0))\n{out} = {a} + w",
)
PASSES = (
    "loss.backward()",
    "loss.backward(retain_graph=True)\nloss.backward()",
    "loss.backward(inputs=[x, w], retain_graph=True)",
    "kept += t.autograd.grad(loss, [x, w], retain_graph=True, allow_unused=True)",
    "kept += t.autograd.grad(loss, [x, w], create_graph=True, allow_unused=True)\n"
    "again = sum([(g * g).sum() for g in kept if g is not None])\n"
    "if again.requires_grad: again.backward()",
    "loss.backward(create_graph=True)\nkept += t.autograd.grad((x.grad * x * w).pow(2).sum(), [x, w])",
    "loss.backward(create_graph=True)\nloss.backward(t.tensor(0.5, dtype=t.float64))",
)


FOUND = (
    "t0 = x * 0.5\nt1 = checkpoint(lambda p, q: (p * q).tanh() + p, x, t0, use_reentrant=False)\n"
    "loss = (x * t1.sin() * t1).sum()\nloss.backward(create_graph=True)\n"
    "kept += t.autograd.grad(x.grad.pow(2).sum(), [x])",
    "w.register_hook(note('w', 2.0))\nt0 = checkpoint(lambda p: (p * w).tanh() * x, x, use_reentrant=False)\n"
    "loss = (t0 * w).sum()\nloss.backward()",
    "t0 = checkpoint(lambda p: p.tanh() * w, x * 2, use_reentrant=False)\n"
    "t1, other, _ = Both.apply(x, t0, 2)\nloss = t1.sum()\n"
    "kept += t.autograd.grad(loss, [x, w], allow_unused=True)",
    "t0, t1 = w.exp(), w.sin() * x\ngraph.register_multi_grad_hook([t0, t1], note_all('t0'))\n"
    "loss = ((x - t1) * t0).sum()\nkept += t.autograd.grad(loss, [x], create_graph=True)\n"
    "kept[0].pow(2).sum().backward()",
    "loss = w.sum()\nloss.backward(create_graph=True)\nw.grad.mul_(2)\nloss.backward()",
)
"""What went wrong once: arguments that depend on one another, hooks of leaves that a checkpoint uses, zeros for None,
hooks of tensors that a second pass may reach and does not, gradients of elements that share memory."""


def random_program(rng: random.Random) -> str:
    """Steps on what the last of them have made, a sum of it, and one pass or two from there."""
    names, lines = ["x", "w", "u"], []
    for number in range(rng.randrange(4, 14)):
        made = f"t{number}"
        lines.append(rng.choice(STEPS).format(out=made, a=_operand(rng, names), b=_operand(rng, names)))
        names.append(made)
    lines.append(f"loss = ({names[-1]} * {_operand(rng, names)}).sum() + (x * w).sum()")
    return "\n".join([*lines, rng.choice(PASSES)])


def _operand(rng: random.Random, names: list[str]) -> str:
    return rng.choice(names[-4:] if rng.random() < 0.7 else names)


def _compare(tg: Any, program: str) -> None:
    # In which order gradients reach tensors that do not depend on one another is not said.
    # Nor is it said in which layout gradients of gradients lie in memory.
    gradients = "[None if g is None else g.contiguous() for g in kept]"
    result = f"(x.grad, w.grad, {gradients}, sorted(seen, key=lambda entry: entry[0]))"
    assert_same(*evaluate(f"{PROLOGUE}{SETUP}{program}\n{result}", tg))


@pytest.mark.parametrize("number", range(PROGRAMS))
def test_passes_come_to_what_pytorchs_come_to(tg: Any, number: int, seed: int) -> None:
    program = random_program(random.Random(seed + number))
    print(program)
    _compare(tg, program)


@pytest.mark.parametrize("program", FOUND)
def test_what_was_found_stays_as_pytorchs(tg: Any, program: str) -> None:
    _compare(tg, program)
