"""Recorded operations executed as they were: on operands of the same sizes, and on those of others."""
