"""Tensors that a program makes of bytes in its rows: what is executed as one takes them anew with each run."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from server.engine import context
from server.engine.value import Value
from server.session.uploads import TensorUpload, new_value
from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.meta import Meta
from telegrad_protocol.programs.rows import Template

DATA: Final = 1
"""The position of the bytes among what an upload's row has of constants; the shape is at 0."""


class Uploaded(NamedTuple):
    """A tensor of the bytes that a row has now."""

    row: int
    meta: Meta

    def of(self, template: Template) -> Value:
        """Make it; ProtocolError where the bytes are of another number."""
        data: Any = template.argument(self.row, DATA)
        if data.__class__ is not bytes:
            raise ProtocolError("an upload of a program has no bytes")
        meta = self.meta
        begun = TensorUpload(0, new_value(context.current.backends[meta.device], meta.shape, meta.dtype))
        begun.write(0, data)
        return begun.finish()
