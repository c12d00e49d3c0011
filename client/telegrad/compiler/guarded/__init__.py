"""Calls of compiled functions whose Python is left out: what it read is guarded, and was found to have no effects."""
