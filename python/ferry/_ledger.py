"""The ledger: every byte that crossed, every request, every sync, as plain data."""

from __future__ import annotations

import html
import os
from typing import Any, Dict, Iterator, List, Optional

from ferry import _c
from ferry._types import plain

_TRAFFIC = ("count", "nbytes", "wire_nbytes", "copies", "host_blocked_ns")


class Totals(dict):
    """The totals of one scope path: a dict of numbers, whose keys are attributes as well.

    upload_count, upload_nbytes, upload_wire_nbytes, upload_copies, upload_host_blocked_ns; download
    and peer alike; requests, syncs, sync_ns, device_allocs, throttles, throttle_ns.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __sub__(self, earlier: "Totals") -> "Totals":
        """What came since `earlier`."""
        same = ("path",)
        return Totals({k: v if k in same else v - earlier[k] for k, v in self.items()})


def _totals(path: str, totals: Any) -> Totals:
    figures: Dict[str, Any] = {"path": path}
    for name, value in plain(totals).items():
        if isinstance(value, dict):
            figures.update({f"{name}_{key}": value[key] for key in _TRAFFIC})
        else:
            figures[name] = value
    return Totals(figures)


class Ledger:
    """ferry.ledger: exact figures of the process, by scope path.

    ferry.ledger.totals() is the whole process, ferry.ledger["train/step"] a path with the scopes
    inside it, list(ferry.ledger) and .rows() all paths: pandas.DataFrame(ferry.ledger.rows()).
    """

    def totals(self, path: Optional[str] = None) -> Totals:
        """The totals of a scope path; None is the process. An unknown path gives zeros."""
        return _totals(path or "", _c.fy_ledger_query(path or None))

    __getitem__ = totals

    def rows(self) -> List[Totals]:
        """One dict for each path that has figures; parents come first; "" is the process."""
        found: List[Totals] = []
        _c.fy_ledger_walk(lambda path, totals: found.append(_totals(path, totals)))
        return found

    def __iter__(self) -> Iterator[Totals]:
        return iter(self.rows())

    def write(self, path: Any, format: str = "json") -> None:
        """Writes the totals of every path to a file: "text", "json" or "csv"."""
        _c.fy_ledger_write(path, format)

    def __repr__(self) -> str:
        t = self.totals()
        return (
            f"ferry.ledger: uploads {t.upload_count} ({t.upload_nbytes} bytes), "
            f"downloads {t.download_count} ({t.download_nbytes} bytes), "
            f"requests {t.requests}, syncs {t.syncs}"
        )

    def _repr_html_(self) -> str:
        """Notebooks: a table, one row a path."""
        keys = ("path", "upload_count", "upload_nbytes", "download_count", "download_nbytes",
                "requests", "syncs", "device_allocs")  # fmt: skip
        head = "".join(f"<th>{key}</th>" for key in keys)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(row[key]))}</td>" for key in keys) + "</tr>"
            for row in self.rows()
        )
        return f"<table><tr>{head}</tr>{body}</table>"


ledger = Ledger()


class record:
    """`with ferry.record("run.jsonl"):` writes every event to a file for `ferry report`.

    "%p" becomes the process's number; ".gz" at the end: compressed. Fails: Busy (a recording is
    running), IOFailed; at the end IOFailed if the file is incomplete.
    """

    def __init__(self, path: Any) -> None:
        self.path = os.fsdecode(path)

    def __enter__(self) -> "record":
        _c.fy_ledger_record(self.path)
        return self

    def __exit__(self, kind: Any, *exc: Any) -> None:
        _c.fy_ledger_record(None)
