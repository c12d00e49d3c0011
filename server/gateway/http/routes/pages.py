"""Pages for people: memory as a picture, and the HTTP interface's description. All that they load comes from here.

The pages are open and hold no data: what they show they ask for, with the token where the server has one.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import FileResponse, HTMLResponse

SHOWS_TOKEN = False
router = APIRouter(include_in_schema=False)

_OWN = files("server.gateway.http") / "pages"
_SWAGGER = files("fastapi_offline") / "static"
_STATIC: Final = {
    "memory.js": (_OWN, "text/javascript"),
    "memory.css": (_OWN, "text/css"),
    "profile.js": (_OWN, "text/javascript"),
    "lanes.js": (_OWN, "text/javascript"),
    "table.js": (_OWN, "text/javascript"),
    "trace.js": (_OWN, "text/javascript"),
    "swagger-ui-bundle.js": (_SWAGGER, "text/javascript"),
    "swagger-ui.css": (_SWAGGER, "text/css"),
    "favicon.png": (_SWAGGER, "image/png"),
}
_SCRIPT: Final = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def _page(text: str) -> HTMLResponse:
    """A page that loads its own files only, and runs the scripts that stand in it."""
    digests = [hashlib.sha256(script.encode()).digest() for script in _SCRIPT.findall(text)]
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    policy = (
        f"default-src 'none'; script-src 'self' {allowed}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    )
    return HTMLResponse(text, headers={"Content-Security-Policy": policy})


@router.get("/")
async def index() -> Response:
    """Links to all that can be looked at."""
    return _page((_OWN / "index.html").read_text())


@router.get("/memory")
async def memory() -> Response:
    """Segments and blocks, live."""
    return _page((_OWN / "memory.html").read_text())


@router.get("/profile")
async def profile() -> Response:
    """What a session executes, live."""
    return _page((_OWN / "profile.html").read_text())


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The endpoints, to read and to try."""
    root = request.scope.get("root_path", "")
    page = get_swagger_ui_html(
        openapi_url=f"{root}/openapi.json", title="telegrad",
        swagger_js_url=f"{root}/static/swagger-ui-bundle.js", swagger_css_url=f"{root}/static/swagger-ui.css",
        swagger_favicon_url=f"{root}/static/favicon.png",
    )  # fmt: skip
    return _page(bytes(page.body).decode())


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """What the pages load."""
    if name not in _STATIC:
        raise HTTPException(404)
    folder, media_type = _STATIC[name]
    return FileResponse(str(folder / name), media_type=media_type)
