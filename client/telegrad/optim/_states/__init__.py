"""States of optimizers: how they are kept for a parameter, and put in the place of others."""
