"""The command ``telegrad``: looks at a server from a shell. Opens no session and needs no GPU."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from telegrad_protocol.errors import AuthenticationError, CommunicationError, ConnectError, ProtocolError

DEFAULT_URL = "http://127.0.0.1:8000"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 1 where the server cannot be reached or refuses."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except CommunicationError as error:
        print(f"telegrad: {error.message}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="telegrad", description="Look at a telegrad server.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add(commands, "devices", _devices, "list the server's devices and their memory")
    memory = _add(commands, "memory", _memory, "print the allocator's table")
    memory.add_argument("--device", help="such as cuda:0; all of them by default")
    _add(commands, "health", _health, "say whether the server is ready")
    return parser


def _add(commands: Any, name: str, run: Callable[[Any], None], text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    command.add_argument(
        "url", nargs="?", default=os.environ.get("TELEGRAD_URL", DEFAULT_URL), help=f"default: {DEFAULT_URL}"
    )
    command.add_argument("--token", default=os.environ.get("TELEGRAD_TOKEN"), help="default: TELEGRAD_TOKEN")
    command.set_defaults(run=run)
    return command


def _devices(options: argparse.Namespace) -> None:
    for device in _get(options, "/v1/devices").json():
        gibi = 2**30
        print(
            f"{device['device']:<8} {device['name']:<24} {device['allocated_memory'] / gibi:8.2f} GiB in tensors "
            f"{device['free_memory'] / gibi:8.2f} GiB free of {device['total_memory'] / gibi:.2f}"
        )


def _memory(options: argparse.Namespace) -> None:
    print(_get(options, "/memory_summary", **({"device": options.device} if options.device else {})).text)


def _health(options: argparse.Namespace) -> None:
    print(_get(options, "/readyz").text)


def _get(options: argparse.Namespace, path: str, **query: str) -> Any:
    import httpx

    headers = {"Authorization": f"Bearer {options.token}"} if options.token else {}
    try:
        answer = httpx.get(options.url.rstrip("/") + path, params=query, headers=headers, timeout=10, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConnectError(f"cannot reach a telegrad server at {options.url}: {error}") from error
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise AuthenticationError(f"{options.url} wants another token; pass --token or set TELEGRAD_TOKEN")
    if answer.is_error:
        raise ProtocolError(f"{options.url}{path} answered {answer.status_code}: {answer.text[:200]}")
    return answer


if __name__ == "__main__":
    sys.exit(main())
