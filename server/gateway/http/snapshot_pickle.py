"""The memory snapshot as the file that PyTorch's viewer opens, which is a pickle. Written here, never read."""

from __future__ import annotations

import pickle  # noqa: TID251
from typing import Any

from fastapi import Response


def viewer_file(snapshot: dict[str, Any]) -> Response:
    """The answer with the file; from JSON's types to PyTorch's."""
    segments = [{**segment, "segment_pool_id": tuple(segment["segment_pool_id"])} for segment in snapshot["segments"]]
    content = pickle.dumps({**snapshot, "segments": segments}, protocol=4)
    disposition = {"Content-Disposition": 'attachment; filename="snapshot.pickle"'}
    return Response(content, media_type="application/octet-stream", headers=disposition)
