"""The command ``telegrad``: looks at a server from a shell, and runs PyTorch programs on one. Needs no GPU."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from telegrad_protocol.errors import AuthenticationError, CommunicationError, ProtocolError

from ._transport.address import DEFAULT_PORT, parse_address

_RUN = "run a PyTorch program, whose `import torch` gives it telegrad"
DEFAULT_URL = f"http://127.0.0.1:{DEFAULT_PORT}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 1 where the server cannot be reached or refuses."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0].endswith(".py"):
        arguments = ["run", *arguments]
    options = _parser().parse_args(arguments)
    try:
        return options.run(options) or 0
    except CommunicationError as error:
        print(f"telegrad: {error.message}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="telegrad", description="Look at a telegrad server, or run a program on it.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add(commands, "devices", _devices, "list the server's devices and their memory")
    memory = _add(commands, "memory", _memory, "print the allocator's table")
    memory.add_argument("--device", help="such as cuda:0, as the server lists them; all of them by default")
    sessions = commands.add_parser(
        "sessions", help="list your sessions, or end one", description="List the sessions that you opened, or end one.",
        usage="telegrad sessions [URL] | telegrad sessions end SESSION [URL]",
    )  # fmt: skip
    sessions.add_argument("words", nargs="*", metavar="URL | end SESSION [URL]", help=f"URL: by default {DEFAULT_URL}")
    sessions.add_argument("--token", default=os.environ.get("TELEGRAD_TOKEN"), help="default: TELEGRAD_TOKEN")
    sessions.set_defaults(run=_sessions, refuse=sessions.error)
    _add(commands, "health", _health, "say whether the server is ready")
    run = commands.add_parser("run", help=_RUN, description=_RUN)
    run.add_argument("--url", help="default: TELEGRAD_URL, else a private server on this machine")
    run.add_argument("--token", help="default: TELEGRAD_TOKEN")
    run.add_argument("--device", default="cpu", help="where tensors are made if the program names none; default: cpu")
    run.add_argument("-m", "--module", action="store_true", help="PROGRAM is the name of a module")
    run.add_argument("program", metavar="PROGRAM", help="a Python file")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="what the program is given")
    run.set_defaults(run=_run)
    return parser


def _run(options: argparse.Namespace) -> int:
    import telegrad

    from ._programs.run import run_program

    telegrad.connect(options.url, token=options.token)
    telegrad.as_torch(options.device)
    return run_program(options.program, options.arguments, options.module)


def _add(commands: Any, name: str, run: Callable[[Any], int | None], text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    command.add_argument(
        "url", nargs="?", default=os.environ.get("TELEGRAD_URL", DEFAULT_URL), help=f"default: {DEFAULT_URL}"
    )
    command.add_argument("--token", default=os.environ.get("TELEGRAD_TOKEN"), help="default: TELEGRAD_TOKEN")
    command.set_defaults(run=run)
    return command


def _devices(options: argparse.Namespace) -> None:
    for device in _get(options, "/v1/devices").json():
        print(
            f"worker {device['worker']} {device['device']:<8} {device['name'] or '':<24} "
            f"{device['sessions']:3d} sessions  {_memory_of(device)}"
        )


def _memory_of(device: dict[str, Any]) -> str:
    if device["state"] != "serving":
        return str(device["state"])
    held, free, total = (device[f"{kind}_memory"] / 2**30 for kind in ("allocated", "free", "total"))
    return f"{held:8.2f} GiB in tensors {free:8.2f} GiB free of {total:.2f}"


def _memory(options: argparse.Namespace) -> None:
    print(_get(options, "/memory_summary", **({"device": options.device} if options.device else {})).text)


def _health(options: argparse.Namespace) -> None:
    print(_get(options, "/readyz").text)


def _sessions(options: argparse.Namespace) -> None:
    from telegrad._session import own_sessions

    words = options.words
    ends = words[:1] == ["end"]
    if len(words) > (3 if ends else 1) or words == ["end"]:
        options.refuse("expected [URL], or: end SESSION [URL]")
    url = (words[2:] if ends else words) or [os.environ.get("TELEGRAD_URL", DEFAULT_URL)]
    if ends:
        own_sessions.end_session(url[0], options.token, words[1])
        print(f"ended session {words[1]}")
        return
    sessions = own_sessions.list_sessions(url[0], options.token)
    print(own_sessions.table_of(sessions) if sessions else f"you have no session at {url[0]}")


def _get(options: argparse.Namespace, path: str, **query: str) -> Any:
    import httpx

    from ._transport.http import http_client
    from ._transport.unreachable import unreachable

    headers = {"Authorization": f"Bearer {options.token}"} if options.token else {}
    base = parse_address(options.url)
    try:
        with http_client(base, seconds=10) as http:
            answer = http.get(path, params=query, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise unreachable(base, error) from None
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise AuthenticationError(f"{options.url} wants another token; pass --token or set TELEGRAD_TOKEN")
    if answer.is_error:
        raise ProtocolError(f"{options.url}{path} answered {answer.status_code}: {answer.text[:200]}")
    return answer


if __name__ == "__main__":
    sys.exit(main())
