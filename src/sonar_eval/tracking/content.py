"""What text may leave the machine on which a sweep ran: all of it, all but what is secret, or none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..errors import ConfigError
from ..scorecard import Score
from .contract import CellRecord

MODES = ("full", "redacted", "none")
MASK = "[redacted]"
WITHHELD = "(withheld)"

# Common shapes of secrets and of personal data; masked with content=redacted.
_COMMON = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----",
    r"\bBearer\s+[\w.~+/=-]{8,}",
    r"\b(?:sk|pk|rk|gh[opsu]|xox[abprs]|glpat)[-_][\w-]{10,}",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\beyJ[\w-]+\.[\w-]+\.[\w-]+",
    r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b",
    r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b",
    r"(?<!\w)(?:\d[ -]?){12,18}\d(?!\w)",
    r"(?<!\w)\+\d[\d ()/-]{6,}\d",
)
# Ids and times that we or OpenTelemetry made: a pattern for numbers must not tear a trace apart.
_MADE = frozenset(
    "span_id trace_id parent_span_id head_span_id conversation_id started_at started_ms random_seed digest key "
    "run_id schema_version".split()
)
# With content=none a text is kept only under these keys: names of things, never what was said.
_NAMES = _MADE | frozenset(
    "action adapter call_id check ended_by error_type experiment fidelity framework import kind model name outcome "
    "owner project provider role scenario scopes severity source status step success_basis target tenant "
    "tokens_basis tool tool_name type verdict".split()
)
# Below these keys stands the content itself, whatever its type.
_CONTENTS = frozenset("extra_body final_state offline_user params payload seed value values".split())


@dataclass(frozen=True)
class Content:
    """A rule for text; `patterns` are masked in any mode."""

    mode: str = "full"
    patterns: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def of(cls, mode: str, redact: Iterable[str] = ()) -> Content:
        """Make a rule of what a configuration says; raises `ConfigError` for an unknown mode or a bad pattern."""
        if mode not in MODES:
            raise ConfigError(f"tracking.content: expected {', '.join(MODES)}; got {mode!r}")
        return cls(mode, tuple(_compiled(pattern) for pattern in redact))

    @property
    def label(self) -> str:
        """Name the rule: full when text passes as it is."""
        return "redacted" if self.mode == "full" and self.patterns else self.mode

    @property
    def everything(self) -> bool:
        """Tell whether text passes as it is."""
        return self.mode == "full" and not self.patterns

    def text(self, text: str, *, name: bool = False) -> str:
        """Return what of a text may be told; a name of something is told also when content is not."""
        if self.mode == "none" and not name and text:
            return WITHHELD
        for pattern in (*self.patterns, *(_common() if self.mode == "redacted" else ())):
            text = pattern.sub(MASK, text)
        return text

    def value(self, value: Any, key: str = "", *, inside: bool = False) -> Any:
        """Return a JSON value with all its texts treated; `inside` content, the keys of objects too."""
        if self.everything or (key in _MADE and not inside):
            return value
        inside = inside or key in _CONTENTS
        if self.mode == "none" and inside and value not in (None, [], {}):
            return WITHHELD
        if isinstance(value, str):
            return self.text(value, name=key in _NAMES)
        if isinstance(value, Mapping):
            return {
                self.text(str(inner), name=True) if inside else inner: self.value(item, str(inner), inside=inside)
                for inner, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item, key, inside=inside) for item in value]
        return self._number(value)

    def _number(self, value: Any) -> Any:
        """Mask a number that a pattern of the user's matches: an account need not be a text."""
        if isinstance(value, int | float) and any(pattern.search(str(value)) for pattern in self.patterns):
            return MASK
        return value

    def cell(self, cell: CellRecord) -> CellRecord:
        """Return the cell as it may be published."""
        if self.everything:
            return cell
        choices = {key: self.text(value, name="." not in key) for key, value in cell.choices.items()}
        named = cell.name if self.mode != "none" else " ".join(choices.get(axis, "-") for axis in cell.axes)
        return replace(
            cell,
            name=self.text(named, name=True),
            key=self.text(cell.key, name=True),
            choices=choices,
            config=self.value(cell.config),
            records=[self.value(record) for record in cell.records],
            report=self.value(cell.report),
            error=self.text(cell.error) if cell.error else None,
            scores=[Score(self.text(score.name, name=True), score.value, score.step) for score in cell.scores],
        )


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"tracking.redact: {pattern!r} is no regular expression: {error}") from error


def _common() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in _COMMON)
