"""Requests to a session and a host, put as the gateway puts them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from server.ipc import requests as verbs
from server.ipc.requests import NewTensor, RunOp, RunOps
from telegrad_protocol.queries import request_name

from .driver import Talk

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def ask(talk: Talk, request: msgspec.Struct, answer: Any = Any) -> Any:
    """Put a request to a session as the gateway does."""
    value = talk.host.control(talk.session, request_name(type(request)), verbs.to_args(request))
    return msgspec.convert(msgspec.msgpack.decode(msgspec.msgpack.encode(value)), answer)


def run(talk: Talk, *steps: verbs.Step) -> Any:
    """Run steps; the results of the last, alone where it has one."""
    results = ask(talk, RunOps(0, list(steps)), list[list[verbs.TensorInfo]])[-1]
    return results[0] if len(results) == 1 else results


def op(name: str, *args: Any, out: Any = None, leaf: bool = False, **kwargs: Any) -> RunOp:
    return RunOp(name, list(args), kwargs, (out,) if isinstance(out, int) else out, leaf)


def t(id: int) -> dict[str, int]:
    return {"tensor": id}


def new(id: int | None, array: Any, leaf: bool = False, device: str = "") -> NewTensor:
    array = np.asarray(array)
    return NewTensor(id, array.dtype.name, array.shape, device, array.tobytes(), leaf)


def read(talk: Talk, id: int) -> Any:
    info = ask(talk, verbs.ReadBegin(id), verbs.ReadInfo)
    try:
        data = ask(talk, verbs.ReadChunk(info.read, 0, info.nbytes), bytes)
        return np.frombuffer(data, info.tensor.dtype).reshape(info.tensor.shape)
    finally:
        ask(talk, verbs.ReadEnd(info.read))
