"""Tenants: who they are, what they may use, and what is noted of them."""
