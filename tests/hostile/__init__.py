"""What hostile or careless clients do to a server of real processes, and what becomes of the others."""
