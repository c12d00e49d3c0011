"""Bessel functions and Airy's, by series, recurrences and quadrature."""
