"""Everything that recognises what the program did before: repeated launches and repeated backward passes."""

from __future__ import annotations
