"""Keeps pandas out of commands that do not use it.

pyarrow imports pandas with the first array that it makes, if it is installed. That takes about a third of the time of
`needle status` and of `needle sql` for one row. If it cannot be imported then, pyarrow imports it when a table is
converted to pandas.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not imported here", name=fullname)


def load_pyarrow() -> None:
    """Import pyarrow, and let it find out that there is no pandas."""
    if "pandas" in sys.modules or "pyarrow" in sys.modules:
        return
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
