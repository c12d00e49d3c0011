"""What calls do besides computing and changing gradients, in forms that can be done again."""
