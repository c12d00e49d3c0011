"""Settings of ``torch.fx``. They change nothing here."""

from __future__ import annotations

verbose_progress = False
do_not_emit_stack_traces = False
