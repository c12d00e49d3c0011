"""Errors that only the server finds, raised at their call where the program would catch them there."""
