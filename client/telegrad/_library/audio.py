"""Operators for recursive filters and alignments of sound, as published compiled libraries define them.

Such a library cannot be loaded, since its kernels are for PyTorch's process. ``define_in`` gives a namespace these
operators instead. They go along one axis step by step, on this machine: a round trip for each tensor that they read.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import numpy as np

from telegrad_protocol.errors import ArgumentError

from .libraries import KEPT, Library

tg: Any = import_module("telegrad")


def filtered(input_signal_windows: Any, a_coeff_flipped: Any, padded_output_waveform: Any) -> Any:
    """Write a recursive filter of signals ``[B, C, T]`` behind the padding of an output, and return the output.

    ``a_coeff_flipped``: the coefficients of each channel, the latest output's last.
    """
    signal, coefficients = input_signal_windows.numpy(), a_coeff_flipped.numpy()
    output = padded_output_waveform.numpy().copy()
    order = coefficients.shape[1]
    for place in range(signal.shape[2]):
        before = output[:, :, place : place + order]
        output[:, :, place + order - 1] = signal[:, :, place] - (before * coefficients).sum(axis=2)
    return padded_output_waveform.copy_(tg.from_numpy(output))


def overdriven(waveform: Any, temp: Any, last_in: Any, last_out: Any, output_waveform: Any) -> tuple[Any, Any, Any]:
    """Write waveforms ``[C, T]`` mixed with their distorted form, without its mean, into an output."""
    signal, distorted, made = waveform.numpy(), temp.numpy(), output_waveform.numpy().copy()
    before, latest = last_in.numpy(), last_out.numpy()
    for place in range(signal.shape[1]):
        latest = distorted[:, place] - before + 0.995 * latest
        before = distorted[:, place]
        made[:, place] = signal[:, place] * 0.5 + latest * 0.75
    output_waveform.copy_(tg.from_numpy(made))
    return last_in, last_out, output_waveform


def aligned(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> tuple[Any, Any]:
    """Return the best path of CTC labels for one sequence, ``int[1, T]``, and ``log_probs`` as they are.

    Raises ValueError for several sequences, and where the frames are too few for the targets.
    """
    if log_probs.shape[0] != 1:
        raise ArgumentError("forced_align: it aligns one sequence at a time")
    frames, wanted = int(input_lengths[0]), targets.numpy()[0, : int(target_lengths[0])]
    repeats = int((wanted[1:] == wanted[:-1]).sum())
    if frames < len(wanted) + repeats:
        raise ArgumentError(
            f"targets length is too long for CTC. Found log_probs length: {frames}, targets length: {len(wanted)}, and "
            f"number of repeats: {repeats}"
        )
    labels = np.full(2 * len(wanted) + 1, blank, dtype=np.int64)
    labels[1::2] = wanted
    path = np.full(log_probs.shape[1], blank, dtype=np.int64)
    path[:frames] = _best_path(log_probs.detach().numpy()[0, :frames], labels, blank)
    return tg.tensor(path[None], dtype=targets.dtype, device=log_probs.device), log_probs


def _best_path(scores: Any, labels: Any, blank: int) -> Any:
    """Return the labels along the path of the highest score, one for each frame."""
    may_skip = np.zeros(len(labels), bool)
    may_skip[2:] = (labels[2:] != blank) & (labels[2:] != labels[:-2])
    best = np.full(len(labels), -np.inf)
    best[:2] = scores[0, labels[:2]]
    steps = np.zeros((len(scores), len(labels)), np.int64)
    for frame in range(1, len(scores)):
        one, two = np.full_like(best, -np.inf), np.full_like(best, -np.inf)
        one[1:], two[2:] = best[:-1], np.where(may_skip[2:], best[:-2], -np.inf)
        choices = np.stack([best, one, two])
        steps[frame] = choices.argmax(axis=0)
        best = choices.max(axis=0) + scores[frame, labels]
    place = len(labels) - 1 if best[-1] > best[-2] else len(labels) - 2
    places = [place]
    for frame in range(len(scores) - 1, 0, -1):
        place -= steps[frame, place]
        places.append(place)
    return labels[places[::-1]]


def transducer_loss(
    logits: Any, targets: Any, logit_lengths: Any, target_lengths: Any, blank: int, clamp: float,
    fused_log_softmax: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """Return the losses of transducers ``[B]`` and their gradients by ``logits`` ``[B, T, U, C]``."""
    given = logits.detach().double().numpy()
    scores = given - np.logaddexp.reduce(given, axis=-1, keepdims=True) if fused_log_softmax else given
    blank = blank % given.shape[-1]
    losses, gradients = np.zeros(len(given)), np.zeros_like(given)
    labels, frames, counts = targets.numpy(), logit_lengths.numpy(), target_lengths.numpy()
    for item, score in enumerate(scores):
        own = score[: frames[item], : counts[item] + 1]
        losses[item], gradient = _transducer(own, labels[item, : counts[item]], blank)
        if fused_log_softmax:
            gradient -= np.exp(own) * gradient.sum(axis=-1, keepdims=True)
        gradients[item, : frames[item], : counts[item] + 1] = gradient
    if clamp > 0:
        gradients = np.clip(gradients, -clamp, clamp)
    return tuple([tg.from_numpy(each).to(logits.device, logits.dtype) for each in (losses, gradients)])


def _transducer(scores: Any, labels: Any, blank: int) -> tuple[float, Any]:
    """Return the loss of one sequence, and its gradient by the logarithms of probabilities ``[T, U, C]``."""
    frames, count, _ = scores.shape
    skip = scores[:, :, blank]
    emit = scores[:, np.arange(count - 1), labels]
    forward, backward = np.full((2, frames + 1, count + 1), -np.inf)
    forward[0, 0], backward[frames - 1, count - 1] = 0.0, skip[-1, -1]
    for t in range(frames):
        for u in range(count):
            if t:
                forward[t, u] = np.logaddexp(forward[t, u], forward[t - 1, u] + skip[t - 1, u])
            if u:
                forward[t, u] = np.logaddexp(forward[t, u], forward[t, u - 1] + emit[t, u - 1])
    for t in range(frames - 1, -1, -1):
        for u in range(count - 1, -1, -1):
            if t < frames - 1:
                backward[t, u] = np.logaddexp(backward[t, u], backward[t + 1, u] + skip[t, u])
            if u < count - 1:
                backward[t, u] = np.logaddexp(backward[t, u], backward[t, u + 1] + emit[t, u])
    total = backward[0, 0]
    gradient = np.zeros_like(scores)
    after = backward[1:, :count].copy()
    after[-1, -1] = 0.0
    gradient[:, :, blank] -= np.exp(forward[:frames, :count] + skip + after - total)
    moved = np.exp(forward[:frames, : count - 1] + emit + backward[:frames, 1:count] - total)
    gradient[:, np.arange(count - 1), labels] -= moved
    return -float(total), gradient


_OPERATORS: Final[dict[str, dict[str, Callable[..., Any]]]] = {
    "torchaudio": {
        "_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeff_flipped, Tensor(a!) padded_output_waveform) "
        "-> Tensor(a!)": filtered,
        "_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor(a!) last_in, Tensor(b!) last_out, "
        "Tensor(c!) output_waveform) -> (Tensor(a!), Tensor(b!), Tensor(c!))": overdriven,
        "forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank) "
        "-> (Tensor, Tensor)": aligned,
        "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, "
        "float clamp, bool fused_log_softmax) -> (Tensor, Tensor)": transducer_loss,
    },
    "_torchaudio": {"cuda_version() -> int?": lambda: None, "is_align_available() -> bool": lambda: True},
}


def define() -> None:
    """Define the operators in their namespaces; the second time does nothing."""
    if any(library.ns == "torchaudio" and library.kind == "FRAGMENT" for library in KEPT):
        return
    for namespace, operators in _OPERATORS.items():
        library = Library(namespace, "FRAGMENT")
        for schema, function in operators.items():
            library.define(schema)
            library.impl(schema.partition("(")[0], function, "CompositeImplicitAutograd")
        KEPT.append(library)
