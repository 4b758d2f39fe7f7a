"""Who may import whom, read from the source itself."""

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "sonar_eval"
PACKAGE = "sonar_eval"
LONGEST_FUNCTION = 60
LONGEST_MODULE = 400

ROOMS = {
    "root": {"__init__"},
    "words": {
        "errors",
        "conversation",
        "damage",
        "fault",
        "interceptor",
        "patience",
        "predicate",
        "stats",
        "usage",
        "version",
    },
    # One way to open an HTTP client: stands below everything that reaches out.
    "web": {"web"},
    "edges": {"llm", "adapter", "transcript"},
    "verdict": {
        "answer",
        "assertions",
        "rating",
        "results",
        "caveats",
        "metrics",
        "records",
        "store",
        "verdict",
        "scorecard",
        "rubric",
        "jury",
        "evidence",
        "threshold",
    },
    "engine": {
        "accounting",
        "brake",
        "budget",
        "config",
        "hindsight",
        "simulator",
        "grader",
        "limits",
        "recorder",
        "markup",
        "utterance",
        "trial",
        "orchestrator",
        "scheduler",
    },
    "outputs": {"tracking", "report"},
    "entry": {"sweep", "comparison", "judging", "cli", "__main__"},
    "ingest": {"ingest"},
    "appside": {"appside"},
    "demo": {"demo"},
}
ROOM_OF = {unit: room for room, units in ROOMS.items() for unit in units}
SDK = {"words", "edges", "verdict", "engine"}

# Rooms, or single units of a room; within a unit (a top-level module or folder) everything may import everything.
MAY_IMPORT = {
    "root": SDK,
    "words": {"words"},
    "web": {"words"},
    "edges": {"words", "web"},
    "verdict": {"words", "transcript", "verdict"},
    "engine": SDK,
    "outputs": {"words", "verdict", "web"},
    "entry": set(ROOMS) - {"root"},
    "ingest": set(),
    "appside": {"words", "edges"},
    "demo": {"words", "edges", "appside"},
}
# Single doors beside the rooms: (importer, imported), a folder standing for everything in it.
DOORS = {
    # The bot in the box is a model with tools.
    ("adapter.chat", "llm"),
    ("adapter.chatbot", "llm"),
    # The one file that both ends of the query share, and the one vocabulary for failure.
    ("ingest", "transcript.wire"),
    ("ingest", "errors"),
    # Its OpenAPI description names the version.
    ("ingest", "version"),
}

THIRD_PARTY = {
    "stats": {"numpy", "scipy"},
    "store": {"orjson"},
    "web": {"httpx"},
    "llm": {"httpx"},
    "adapter": {"httpx"},
    "adapter.chat": {"opentelemetry", "sonar_tracing"},
    "adapter.chatbot": {"sonar_tracing"},
    "transcript": {"httpx"},
    # For the id of a conversation.
    "orchestrator": {"sonar_tracing"},
    "report": {"matplotlib", "jinja2"},
    # httpx only to ask whether a tracking server answers, before the client of MLflow waits for minutes.
    "tracking.mlflow": {"mlflow", "httpx"},
    "tracking.fetch": {"mlflow"},
    "tracking.feedback": {"mlflow"},
    # omegaconf is Hydra's own configuration type; tqdm draws the progress of a sweep.
    "sweep": {"hydra", "omegaconf", "tqdm"},
    "cli": {"click"},
    # The command line where a process starts; records of runs are fetched from MLflow.
    "comparison.command": {"click"},
    "comparison.found": {"mlflow"},
    # A judge is found by its name in the configuration, and rebuilt from that of a cell.
    "judging": {"hydra", "omegaconf"},
    "judging.command": {"click"},
    # google.* is what opentelemetry-proto is made of; click reads the command line where a process starts.
    "ingest": {"starlette", "uvicorn", "sqlalchemy", "opentelemetry", "google", "click", "orjson"},
    # The API of OpenTelemetry, to mark the spans of a bot that is traced with it.
    "appside": {"starlette", "sonar_tracing", "opentelemetry"},
    "demo": {"starlette", "uvicorn", "sonar_tracing", "click"},
}


@dataclass(frozen=True)
class Source:
    """One file: its name within the package (`__init__` of a folder is the folder's own name) and its text."""

    name: str
    path: Path
    text: str


def read_sources():
    sources = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = list(path.relative_to(SOURCE).with_suffix("").parts)
        if parts[-1] == "__init__" and len(parts) > 1:
            parts.pop()
        sources.append(Source(".".join(parts), path, path.read_text(encoding="utf-8")))
    return sources


SOURCES = read_sources()
NAMES = {source.name for source in SOURCES}
FOLDERS = sorted({name.rpartition(".")[0] for name in NAMES})


def unit(name):
    return name.split(".")[0]


def imports_of(source):
    """Return the names of our own modules that a file imports, wherever in it, and of foreign top-level modules."""
    own, foreign = set(), set()
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute(source, node)
            found = [(base, alias.name) for alias in node.names]
        else:
            continue
        for base, name in found:
            if unit(base) == PACKAGE:
                own.add(module_named(base, name))
            else:
                foreign.add(unit(base))
    return own, foreign - set(sys.stdlib_module_names)


def absolute(source, node):
    if not node.level:
        return node.module
    folder = [PACKAGE, *source.path.relative_to(SOURCE).parent.parts]
    stem = folder[: len(folder) - node.level + 1]
    return ".".join([*stem, node.module] if node.module else stem)


def module_named(base, name):
    """Name the file behind `from base import name`: the submodule of that name, or else `base` itself."""
    inner = ".".join([*base.split(".")[1:], name] if name else base.split(".")[1:])
    if inner in NAMES:
        return inner
    return ".".join(base.split(".")[1:]) or "__init__"


def within(name, door):
    return name == door or name.startswith(f"{door}.")


def may_import(importer, imported):
    one, other = unit(importer), unit(imported)
    if one == other:
        return True
    if any(within(importer, a) and within(imported, b) for a, b in DOORS):
        return True
    return bool({other, ROOM_OF[other]} & MAY_IMPORT[ROOM_OF[one]])


def foreign_allowed(importer):
    return set().union(*(names for door, names in THIRD_PARTY.items() if within(importer, door)))


OWN = {source.name: imports_of(source)[0] for source in SOURCES}
FOREIGN = {source.name: imports_of(source)[1] for source in SOURCES}


def test_every_file_stands_in_a_room():
    assert {unit(name) for name in NAMES} - set(ROOM_OF) == set()


def test_files_import_only_what_their_room_allows():
    broken = [
        f"{importer} imports {imported}"
        for importer, found in OWN.items()
        for imported in sorted(found)
        if not may_import(importer, imported)
    ]
    assert broken == []


def test_files_import_only_the_third_parties_their_room_allows():
    broken = [
        f"{importer} imports {', '.join(sorted(found - foreign_allowed(importer)))}"
        for importer, found in FOREIGN.items()
        if found - foreign_allowed(importer)
    ]
    assert broken == []


def test_no_file_imports_the_root_of_the_package():
    assert [importer for importer, found in OWN.items() if "__init__" in found] == []


def test_no_two_files_reach_each_other():
    assert cycle_in(OWN) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_two_neighbours_in_a_folder_reach_each_other(folder):
    assert cycle_in(neighbours(folder)) == []


def neighbours(folder):
    """Draw the imports between what stands directly in a folder, each sub-folder taken as one."""
    prefix = f"{folder}." if folder else ""
    depth = len(prefix.split("."))
    graph = {}
    for importer, found in OWN.items():
        if importer.startswith(prefix):
            child = ".".join(importer.split(".")[:depth])
            others = {".".join(name.split(".")[:depth]) for name in found if name.startswith(prefix)}
            graph.setdefault(child, set()).update(others - {child})
    return graph


def cycle_in(graph):
    """Return the names on cycles, by taking away again and again what imports, or is imported by, nothing left."""
    left = set(graph)
    while True:
        imported = set().union(*(graph[name] - {name} for name in left))
        loose = {name for name in left if not (graph[name] - {name}) & left or name not in imported}
        if not loose:
            return sorted(left)
        left -= loose


def test_no_function_is_too_long():
    too_long = [
        f"{source.name}:{node.lineno} {node.name}"
        for source in SOURCES
        for node in ast.walk(ast.parse(source.text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    ]
    assert too_long == []


def test_no_module_is_too_long():
    assert [source.name for source in SOURCES if len(source.text.splitlines()) > LONGEST_MODULE] == []


def test_no_module_is_named_for_want_of_a_name():
    vague = {"utils", "util", "helpers", "helper", "misc", "common"}
    assert [name for name in NAMES if vague & set(name.replace("_", ".").split("."))] == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("errors", "assertions"),
        ("llm.openai", "adapter.wire"),
        ("adapter.http", "llm"),
        ("assertions", "config"),
        ("verdict", "llm"),
        ("trial", "tracking"),
        ("tracking.mlflow", "report.render"),
        ("report.render", "orchestrator"),
        ("orchestrator", "sweep.job"),
        ("ingest.app", "transcript.client"),
        ("ingest.app", "conversation"),
        ("appside.gate", "demo.bot"),
    ],
)
def test_a_forbidden_import_would_be_noticed(importer, imported):
    assert not may_import(importer, imported)


def test_imports_are_found_wherever_they_stand():
    text = """
import numpy
from . import wire
from ..errors import describe
def late():
    from ..llm import scripted
if TYPE_CHECKING:
    from ..orchestrator import Orchestrator
    import httpx.more
"""
    own, foreign = imports_of(Source("adapter.sample", SOURCE / "adapter" / "sample.py", text))
    assert own == {"adapter.wire", "errors", "llm.scripted", "orchestrator"}
    assert foreign == {"numpy", "httpx"}


def test_a_cycle_would_be_noticed():
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]
