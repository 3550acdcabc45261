"""The console: the page at `/`, whose files are in `assets/`. They hold nothing of a lake, so they need no token."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import FastAPI, Request
from fastapi.responses import Response

from needlepoint.service.problems import RequestProblem

_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_PAGE = "index.html"
_NONCE = b"{{nonce}}"  # in the page: CodeMirror adds a style sheet, which has to know it
_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the console; `tag` changes with its content."""

    content: bytes
    media_type: str
    tag: str


def add_console(app: FastAPI) -> None:
    """Serve the console. A request can only name what was there at the start, so no path leads out of the assets."""
    assets = dict(_assets(resources.files("needlepoint.service") / "assets"))

    async def page() -> Response:
        nonce = secrets.token_urlsafe(16)
        content = assets[_PAGE].content.replace(_NONCE, nonce.encode())
        # A stored page would have the nonce of another response.
        headers = {**_HEADERS, "Cache-Control": "no-store", "Content-Security-Policy": _policy(nonce)}
        return Response(content, media_type=assets[_PAGE].media_type, headers=headers)

    async def asset(request: Request, name: str) -> Response:
        found = assets.get(name)
        if found is None or name == _PAGE:
            raise RequestProblem(404, "the console has no such file.", hint="The console is at /.")
        headers = {**_HEADERS, "ETag": found.tag}
        if found.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)

    app.get("/", include_in_schema=False)(page)
    app.get("/console/{name:path}", include_in_schema=False)(asset)


def _assets(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Asset]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _assets(each, f"{prefix}{each.name}/")
        elif media_type := _MEDIA_TYPES.get(f".{each.name.rpartition('.')[2]}"):
            content = each.read_bytes()
            yield prefix + each.name, Asset(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:16]}"')


def _policy(nonce: str) -> str:
    """Nothing from elsewhere, and no script in the page itself: what a lake holds can never become one."""
    return "; ".join(
        [
            "default-src 'none'",
            "script-src 'self'",
            f"style-src 'self' 'nonce-{nonce}'",
            "connect-src 'self'",
            "img-src 'self' data: blob:",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
