"""Files of ``torch.save``: zip archives of a pickle and of storages, read and written without running anything."""

from __future__ import annotations
