"""Modules that packages import below ``torch._inductor``."""
