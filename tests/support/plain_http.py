"""Requests of tests to servers without TLS, past the proxies of the environment.

httpx reads the system's certificates for each client that it makes, which takes 40 ms; these share a context that has
none.
"""

from __future__ import annotations

import ssl
from functools import partial
from typing import Final

import httpx

_WITHOUT_CERTIFICATES: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

Client = partial(httpx.Client, trust_env=False, verify=_WITHOUT_CERTIFICATES)
request = partial(httpx.request, trust_env=False, verify=_WITHOUT_CERTIFICATES)
get = partial(httpx.get, trust_env=False, verify=_WITHOUT_CERTIFICATES)
post = partial(httpx.post, trust_env=False, verify=_WITHOUT_CERTIFICATES)
put = partial(httpx.put, trust_env=False, verify=_WITHOUT_CERTIFICATES)
delete = partial(httpx.delete, trust_env=False, verify=_WITHOUT_CERTIFICATES)
stream = partial(httpx.stream, trust_env=False, verify=_WITHOUT_CERTIFICATES)
