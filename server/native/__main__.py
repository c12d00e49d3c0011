"""Compile for whoever uses this installation, into the prefix of its interpreter: ``python -m server.native``.

An image that has no compiler is built so. Fails where there is no compiler, or it does not take the text.
"""

from __future__ import annotations

import sys

from telegrad_protocol.native import place
from telegrad_protocol.native.compiling import compile_library, compiler

from . import SOURCE


def main() -> int:
    """Compile, and say where the module is."""
    library = place.shared_library(SOURCE)
    if library is None:
        print("server.native: this interpreter takes no modules in C", file=sys.stderr)
        return 1
    if compiler() is None:
        print("server.native: there is no compiler, or there are no headers of Python", file=sys.stderr)
        return 1
    compile_library(SOURCE, library)
    if not library.exists():
        print(f"server.native: the text was not compiled; see {library.with_name('failed')}", file=sys.stderr)
        return 1
    library.chmod(0o755)
    library.parent.chmod(0o755)
    print(library)
    return 0


if __name__ == "__main__":
    sys.exit(main())
