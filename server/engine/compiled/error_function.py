"""The numbers of which the error function in single precision is made: tanh(x * p(x ** 2))."""

from __future__ import annotations

from typing import Final

END: Final = 4.2
"""Where the argument of tanh has passed 10, from which NumPy's is exactly 1; beyond 4 erf is, in single precision."""
COEFFICIENTS: Final = (
    1.418528902306211e-07, -5.668485990412858e-06, 8.763738216453136e-05, -6.197847790615002e-04,
    -1.9183069497128022e-04, 1.0276905576031875e-01, 1.1283792743080223,
)  # fmt: skip
"""artanh(erf(x)) / x in powers of x ** 2 on [0, 16], the highest first, fitted by weighted least squares to the
relative error of erf."""
