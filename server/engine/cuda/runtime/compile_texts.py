"""The process that compiles CUDA texts beside a worker: ``python -m server.engine.cuda.runtime.compile_texts``.

It reads requests from its standard input, and writes an answer for each to its standard output: what the compiler has
complained about, empty where the machine code lies in the kernel cache now. It ends with its input.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import BinaryIO, Final

import msgspec

from telegrad_protocol.errors import TelegradError

from .compiler import compile_cubin, is_kept

LENGTH: Final = struct.Struct("<I")
"""Before each message comes its length in bytes."""
NOT_KEPT: Final = "what was compiled cannot be written to the kernel cache"
_NICENESS: Final = 10


def framed(message: object) -> bytes:
    """Return the bytes of a message with its length."""
    data = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(data)) + data


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Compile what is asked for, a text for an architecture each time, until there are no more requests."""
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        source, target = msgspec.msgpack.decode(requests.read(LENGTH.unpack(head)[0]), type=tuple[str, str])
        answers.write(framed(_compile(source, target)))
        answers.flush()


def _compile(source: str, target: str) -> str:
    try:
        compile_cubin(source, target)
    except TelegradError as error:
        return str(error)
    return "" if is_kept(source, target) else NOT_KEPT


if __name__ == "__main__":
    os.nice(_NICENESS)
    serve(sys.stdin.buffer, sys.stdout.buffer)
