"""The HTTP interface: routes, their pydantic models, and the forms in which tensors travel over HTTP."""

from __future__ import annotations
