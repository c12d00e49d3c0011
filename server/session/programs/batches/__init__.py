"""Batches that came before: found by their bytes, and taken apart into stretches."""
