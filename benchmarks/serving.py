"""An exported GPT-2-shaped model over HTTP, beside a FastAPI service that runs it in PyTorch.

``python -m benchmarks.serving [--device cpu] [--callers 1,8,64] [--seconds 5] [--modes eager,compiled] [--save NAME]``.
Each row has requests per second and the median and 99th percentile of a request's time, as callers on the same machine
see them: they send the tokens of one sequence as JSON, and get the ten most likely next tokens. The services are
processes of their own and run one after the other; the callers share the machine with them. Answers are compared first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .measure import Figure, about, figure, save
from .serving_callers import Load, answer, load, request_of
from .serving_model import SERVED, next_tokens

GOAL = 2.0
"""How many times the throughput of the best FastAPI service is wanted, with the most callers."""
START_SECONDS = 300.0


def weights(folder: pathlib.Path) -> None:
    """Write the model's weights for PyTorch, and its program for telegrad, from the same numbers."""
    import torch

    import telegrad as tg

    torch.manual_seed(0)
    reference = next_tokens(torch)
    torch.save(reference.state_dict(), folder / "weights.pt")
    module = next_tokens(tg).eval()
    module.load_state_dict({name: tg.tensor(t.numpy()) for name, t in reference.state_dict().items()})
    shapes = {"tokens": {0: tg.export.Dim("batch"), 1: tg.export.Dim("length", max=SERVED.context)}}
    example = (tg.zeros(2, 16, dtype=tg.int64),)
    tg.export.save(tg.export.export(module, example, dynamic_shapes=shapes), folder / "gpt.safetensors")
    tg.disconnect()


@contextmanager
def telegrad_service(folder: pathlib.Path, device: str) -> Iterator[tuple[int, str]]:
    """The port of a server that serves the program, and the path of its endpoint."""
    # Loops that are compiled beside the worker would share the processors with it at first.
    settings = {"PROGRAMS": str(folder), "LOG_LEVEL": "ERROR", "COMPILED_KERNELS": "wait"}
    environment = os.environ | {f"TELEGRAD_{name}": value for name, value in settings.items()}
    devices = device if device == "cpu" or ":" in device else f"{device}:0"
    command = [sys.executable, "-m", "server", "--port", "0", "--announce", "--devices", devices]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        try:
            yield int(url.rpartition(":")[2]), "/v1/programs/gpt"
        finally:
            process.terminate()


@contextmanager
def fastapi_service(folder: pathlib.Path, device: str, mode: str) -> Iterator[tuple[int, str]]:
    """The port of a FastAPI service that runs the model in PyTorch, and the path of its endpoint."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        command = [sys.executable, "-m", "benchmarks.serving_baseline", str(folder / "weights.pt")]
        given = [str(listener.fileno()), device, mode]
        with subprocess.Popen([*command, *given], pass_fds=[listener.fileno()]) as process:
            try:
                yield listener.getsockname()[1], "/predict"
            finally:
                process.terminate()


def measured(port: int, path: str, name: str, args: argparse.Namespace, tokens: Any) -> tuple[list[Load], Any]:
    """Return the load for each number of callers, and what the first request was answered with."""
    bodies = [{"tokens": one.tolist()} for one in tokens]
    wrapped = [{"inputs": body} if path.startswith("/v1") else body for body in bodies]
    requests = [request_of("127.0.0.1", path, body) for body in wrapped]
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            first = asyncio.run(answer(port, requests[0]))
            break
        except (ConnectionError, asyncio.IncompleteReadError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    loads = []
    for callers in args.callers:
        loads.append(asyncio.run(load(port, requests, callers, args.seconds, args.seconds)))
        one = loads[-1]
        shown = f"{name:<28} {callers:>4} callers {one.rate:>9.1f}/s"
        print(f"{shown}  p50 {one.p50 * 1e3:8.2f} ms  p99 {one.p99 * 1e3:8.2f} ms", flush=True)
    return loads, first


def compare(ours: Any, theirs: Any, mode: str) -> None:
    """Fail if a service answers something else than PyTorch."""
    found, wanted = [np.array(one["logarithms"]) for one in (ours["outputs"], theirs)]
    if not np.allclose(found, wanted, rtol=1e-3, atol=1e-3) or ours["outputs"]["tokens"] != theirs["tokens"]:
        raise SystemExit(f"telegrad's answer is not that of PyTorch ({mode}): {ours} and {theirs}")


def main() -> None:
    """Measure, print a table, and save it where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--callers", default="1,8,64", type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--seconds", default=5.0, type=float)
    parser.add_argument("--modes", default="eager,compiled", type=lambda text: [m for m in text.split(",") if m])
    parser.add_argument("--save", default="")
    args = parser.parse_args()
    tokens = np.random.default_rng(0).integers(0, SERVED.vocabulary, (256, 1, SERVED.context))
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        weights(folder)
        with telegrad_service(folder, args.device) as (port, path):
            ours, first = measured(port, path, "telegrad", args, tokens)
        others = {}
        for mode in args.modes:
            with fastapi_service(folder, args.device, mode) as (port, path):
                others[mode], reference = measured(port, path, f"FastAPI, PyTorch {mode}", args, tokens)
            compare(first, reference, mode)
    for place, callers in enumerate(args.callers):
        best = max([loads[place].rate for loads in others.values()], default=0.0)
        rows = {"telegrad": ours[place], **{f"FastAPI, PyTorch {mode}": loads[place] for mode, loads in others.items()}}
        for name, one in rows.items():
            extra = {"p50_ms": one.p50 * 1e3, "p99_ms": one.p99 * 1e3}
            goal = GOAL * best if name == "telegrad" and callers == max(args.callers) and best else None
            figures.append(figure(f"{name}, {callers} callers", "req/s", [one.rate], at_least=goal, **extra))
    for row in figures:
        print(row.row())
    if args.save:
        save(args.save, figures, **about(args.device))


if __name__ == "__main__":
    main()
