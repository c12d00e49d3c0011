"""Compiled loops that read operands otherwise than in the result's order: broadcast, at positions that data gives, and
as pairs of neighbours."""
