"""Schemas of operators: ``types`` is what they consist of, ``text`` reads them, ``annotations`` infers them.

``tags`` are marks of operators, and ``tag_checks`` what a mark demands of a schema.
"""

from __future__ import annotations
