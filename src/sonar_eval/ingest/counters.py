"""What the server has done so far, for whoever scrapes it."""

from __future__ import annotations

from collections import Counter

_HELP = {
    "sonar_ingest_requests_total": "Trace requests by answer.",
    "sonar_ingest_spans_total": "Spans by what became of them.",
    "sonar_ingest_bytes_total": "Bytes of trace requests as they came.",
    "sonar_ingest_queries_total": "Conversation queries by answer.",
}


class Counters:
    """Counters that only grow, in Prometheus' text form."""

    def __init__(self) -> None:
        self._values: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, label: str = "", by: int = 1) -> None:
        """Count; `label` is written `key="value"`."""
        self._values[name, label] += by

    def render(self) -> str:
        """Write them as Prometheus reads them."""
        lines: list[str] = []
        for name, text in _HELP.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
            found = sorted((label, value) for (known, label), value in self._values.items() if known == name)
            lines += [f"{name}{{{label}}} {value}" if label else f"{name} {value}" for label, value in found]
        return "\n".join(lines) + "\n"
