"""Packs of another machine's store, in a bucket: read by range, and kept on disk up to a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType

from needlepoint.errors import NeedlepointError, StoreError
from needlepoint.objects import Identity
from needlepoint.stores.packs import PackDamaged, PackPiece, PackStore, checked
from needlepoint.stores.piece_cache import PieceCache


class LakePacks(PackStore):
    """The packs below a URL. They never change, and every piece has a checksum: no request but for the pieces."""

    def __init__(self, url: str | Callable[[], str], pieces: PieceCache) -> None:
        """A function says where they are, if that is not known yet."""
        super().__init__(Path())
        self._url = url
        self._pieces = pieces

    def open(self, name: str) -> LakePack:
        return LakePack(self.where(name), self._pieces)

    def where(self, name: str) -> str:
        return f"{self._url if isinstance(self._url, str) else self._url()}/{name}"

    def read(self, name: str, pieces: Sequence[PackPiece], etag: str = "", size: int = 0) -> list[bytes | PackDamaged]:
        where = self.where(name)
        try:
            read = LakePack(where, self._pieces).read_ranges([(each.start, each.length) for each in pieces])
        except FileNotFoundError:
            return [PackDamaged(f"{where} is missing.", hint="Sync the lake where it is written.")] * len(pieces)
        except (NeedlepointError, OSError) as error:
            return [PackDamaged(f"{where} cannot be read: {error}")] * len(pieces)
        found = checked(where, pieces, read)
        damaged = [each for each, data in zip(pieces, found, strict=True) if isinstance(data, PackDamaged)]
        if damaged:
            self._pieces.drop(where, [(each.start, each.length) for each in damaged])
        return found

    def missing(self, names: Iterable[str]) -> set[str]:
        raise _elsewhere(self.where(""))

    def write(self, pieces: Iterable[bytes]) -> tuple[str, int]:
        raise _elsewhere(self.where(""))


class LakePack:
    """One pack; an OpenObject whose size is not known."""

    __slots__ = ("_pieces", "bytes_requested", "identity", "path", "requests")

    def __init__(self, url: str, pieces: PieceCache) -> None:
        self.path = url
        self._pieces = pieces
        self.identity = Identity(0, 0)
        self.requests = 0
        self.bytes_requested = 0

    @property
    def size(self) -> int:
        return self.identity.size

    def read(self, offset: int, length: int) -> bytes:
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Not checked: what is read has a checksum of its own. A damaged pack may have fewer bytes."""
        from needlepoint.objects.remote import get_parts

        held = self._pieces.get(self.path, ranges)
        missing = [each for each in dict.fromkeys(ranges) if each not in held and each[1]]
        if missing:
            self.requests += 1
            self.bytes_requested += sum(length for _, length in missing)
            fetched = dict(zip(missing, get_parts(self.path, missing), strict=True))
            self._pieces.put(self.path, {place: data for place, data in fetched.items() if len(data) == place[1]})
            held = {**held, **fetched}
        return [held.get(each, b"") for each in ranges]

    def check_unchanged(self, identity: Identity) -> None:
        """A pack never changes."""

    def sample(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> LakePack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _elsewhere(url: str) -> StoreError:
    return StoreError(f"{url.rstrip('/')} belongs to the machine that writes the lake.", hint="Write the lake there.")
