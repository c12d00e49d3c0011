"""The service that ``benchmarks.serving`` compares with: FastAPI and PyTorch, as people write it."""

from __future__ import annotations

import socket
import sys
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from .serving_model import next_tokens


class Inputs(BaseModel):
    """Tokens of some sequences of one length."""

    tokens: list[list[int]]


def service(model: Any, device: str) -> FastAPI:
    """Return an application with ``POST /predict``."""
    app = FastAPI()

    @app.post("/predict")
    def predict(inputs: Inputs) -> dict[str, Any]:
        with torch.inference_mode():
            outputs = model(torch.tensor(inputs.tokens, device=device))
            return {name: tensor.tolist() for name, tensor in outputs.items()}

    return app


def main() -> None:
    """Serve the weights of a file on a socket that is open already: ``weights fd device eager|compiled``."""
    weights, fd, device, mode = sys.argv[1:]
    model = next_tokens(torch).eval().to(device)
    model.load_state_dict(torch.load(weights, weights_only=True))
    if mode == "compiled":
        model = torch.compile(model, dynamic=True)
    server = uvicorn.Server(uvicorn.Config(service(model, device), log_level="warning", access_log=False))
    server.run(sockets=[socket.socket(fileno=int(fd))])


if __name__ == "__main__":
    main()
