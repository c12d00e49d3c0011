"""Instructions about differentiation: whole passes, and passes that stop where the client computes."""
