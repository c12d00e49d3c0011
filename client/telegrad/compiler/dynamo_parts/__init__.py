"""Modules below ``torch._dynamo`` that programs and their tests import; ``compiler.dynamo`` has what it has itself."""
