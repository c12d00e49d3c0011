"""The command ``telegrad-server``: environment and options in, a running server or one readable line out."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import secrets
import sys
from collections.abc import Sequence

from telegrad_protocol.errors import ConfigurationError

from . import __version__
from .gateway.settings import Settings, load_settings, unknown_variables
from .gateway.workers import early
from .ipc.logs import configure_logs

log = logging.getLogger("server")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve; 2 if something is set wrongly."""
    options = vars(_parser().parse_args(arguments))
    announce, tenant = options.pop("announce"), options.pop("new_tenant", None)
    if tenant is not None:
        return _print_new_tenant(tenant)
    try:
        settings = load_settings(**options)
        configure_logs(settings.log_level)
        for name in unknown_variables():
            log.warning("unknown variable", extra={"variable": name})
        if settings.isolation == "shared" or settings.spare_workers:
            early.begin()
        _serve(settings, announce)
    except ConfigurationError as error:
        print(f"telegrad-server: {error.message}", file=sys.stderr)
        return 2
    finally:
        early.end()
    return 0


def _print_new_tenant(name: str) -> int:
    """Print a table for the file of tenants; its token, which nothing keeps, on the standard error."""
    from .gateway.tenancy.tenants import digest

    token = secrets.token_urlsafe(32)
    print(f'[{name}]\ntoken_sha256 = "{digest(token)}"')
    print(f"the token of {name}, shown this once: {token}", file=sys.stderr)
    return 0


def _serve(settings: Settings, announce: bool) -> None:
    # Importing the application takes a while, and bad settings should be told at once. Nothing of it is garbage.
    gc.disable()
    from .gateway.app import create_app
    from .gateway.serving import check_descriptors, listen, serve
    from .gateway.unix_socket import UnixListener

    check_descriptors(settings)
    app = create_app(settings)
    gc.freeze()
    gc.enable()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listen(settings))
        unix = stack.enter_context(UnixListener(settings)) if settings.unix_socket else None
        serve(app, listener, announce, unix)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="telegrad-server", description="Serve tensor operations over the network.",
        epilog="Everything is set by TELEGRAD_* variables, listed in docs/configuration.md; options outrank them.",
        argument_default=argparse.SUPPRESS,
    )  # fmt: skip
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", help="port to listen on, 0 for a free one")
    parser.add_argument("--unix-socket", help="path of a Unix socket to listen on as well, or 'private'")
    parser.add_argument("--devices", help="devices of the workers, such as 'cuda:0,cuda:1;cuda:2' or cpu")
    parser.add_argument("--log-level", help="DEBUG, INFO, WARNING or ERROR")
    parser.add_argument("--ready-fd", help="file descriptor that gets a line of JSON, url and pid, when ready")
    parser.add_argument("--parent-fd", help="pipe whose closing ends the server")
    parser.add_argument("--announce", action="store_true", default=False, help="print url and pid as JSON when ready")
    parser.add_argument("--new-tenant", metavar="NAME", help="print a new tenant's table for TELEGRAD_TENANTS, and end")
    parser.add_argument("--version", action="version", version=f"telegrad-server {__version__}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
