"""Fetch a file over HTTPS."""

from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

from vbdrop.data.errors import FetchError

Progress = Callable[[str, int, int | None], None]
"""Called repeatedly with the current activity, the bytes so far, and the total (None if unknown)."""

_CHUNK = 1 << 18
_TIMEOUT = 30.0  # seconds without a byte


def download(url: str, path: Path, progress: Progress) -> None:
    """Write what is at ``url`` to ``path``.

    Raises:
        FetchError: The server cannot be reached, has no such file, or the download was interrupted.
        OSError: The file cannot be written.
    """
    with path.open("wb") as file:
        for done, total, chunk in _chunks(url):
            file.write(chunk)
            progress(f"downloading {path.name}", done, total)


def _chunks(url: str) -> Iterator[tuple[int, int | None, bytes]]:
    done = 0
    try:
        with urlopen(Request(url, headers={"User-Agent": "vbdrop"}), timeout=_TIMEOUT) as response:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdecimal() else None
            while chunk := response.read(_CHUNK):
                done += len(chunk)
                yield done, total, chunk
    except (OSError, HTTPException, ValueError) as error:
        raise FetchError(f"cannot download {url}: {error or type(error).__name__}") from error
    if total is not None and done != total:
        raise FetchError(f"the download of {url} was interrupted after {done} of {total} bytes")
