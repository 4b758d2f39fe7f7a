"""The cells of a sweep: which there are, what each is made of, and in which order they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from ..errors import ConfigError
from .build import build_scenario, build_task, check, read_config
from .key import AXES, cell_key, fingerprint
from .prompt import prompt_name
from .schema import SweepConf
from .trials import AUTO

GROUPS = ("task", *AXES, "bot", "user", "grader", "ingest")
# Two of these are compared with one another; between them nothing else may change, not even the hour.
_ARMS = ("model", "prompt")
# Why the judge of a cell cannot decide, and what to do about it.
_NO_JUDGE: tuple[tuple[str, str, Callable[[SweepConf], bool]], ...] = (
    ("nobody judges (grader=none)", "choose another grader", lambda conf: conf.grader.type == "none"),
    ("there is no rubric", "give the scenario one", lambda conf: not conf.scenario.rubric),
)
_MOST_NAMED = 5
# How a sweep is run, which is no part of any cell.
_OF_THE_COMMAND = ("resume", "dry_run")


@dataclass(frozen=True, eq=False)
class PlannedCell:
    """One cell before it is run."""

    key: str
    overrides: tuple[str, ...]
    choices: dict[str, str]
    varies: dict[str, str]
    """What else the sweep varies, beyond the four axes."""
    parts: dict[str, str]
    """The hash of each part of its configuration."""
    trials: int
    conf: SweepConf
    place: int = 0
    """Where it stands in the table; cells run in another order."""

    @property
    def name(self) -> str:
        """Name the cell by what distinguishes it."""
        return cell_name(self.choices, self.varies)

    @property
    def adds_trials(self) -> bool:
        """Tell whether looks at the arms decide on its number of trials; a scenario's own number stays."""
        return bool(self.conf.task.k == AUTO and self.conf.scenario.k is None)

    def written(self) -> dict[str, Any]:
        """Return what of it is kept in the sweep's folder."""
        return {
            "key": self.key,
            "name": self.name,
            "choices": self.choices,
            "varies": self.varies,
            "parts": self.parts,
            "trials": self.trials,
            "place": self.place,
            "overrides": list(self.overrides),
        }


def cell_name(choices: dict[str, str], varies: dict[str, str]) -> str:
    """Name a cell by its four axes and what else varies."""
    return " ".join([*(choices.get(axis, "-") for axis in AXES), *(f"{key}={value}" for key, value in varies.items())])


def plan_cells(config: DictConfig) -> list[PlannedCell]:
    """Compose and check every cell of the sweep that `config` describes, in the order in which they are to run.

    Raises `ConfigError` or Hydra's own errors for the first mistake.
    """
    jobs = _jobs(config)
    _require_distinct(jobs)
    varying = _varying(jobs)
    cells = [_plan(config, job, varying, place) for place, job in enumerate(jobs)]
    if len({cell.conf.task.k == AUTO for cell in cells}) > 1:
        raise ConfigError("task.k=auto holds for the whole sweep; run one sweep for each number of trials")
    seen: dict[str, PlannedCell] = {}
    for cell in cells:
        if cell.key in seen:
            raise ConfigError(f"two cells of this sweep are the same: {' '.join(cell.overrides)}")
        seen[cell.key] = cell
    _require_names(cells)
    _require_judges(cells)
    order = _interleaved(jobs)
    return [cells[place] for place in order]


def _jobs(config: DictConfig) -> list[list[str]]:
    """List the jobs as Hydra would: the experiment's parameters, then the command line."""
    params = OmegaConf.to_container(config.hydra.sweeper.get("params") or OmegaConf.create({}))
    assert isinstance(params, dict)
    lines = [f"{key!s}={value}" for key, value in params.items()]
    loader = GlobalHydra.instance().config_loader()
    parser = OverridesParser.create(config_loader=loader)
    parsed = parser.parse_overrides([*lines, *config.hydra.overrides.task])
    for override in parsed:
        _require_single(override)
        _require_values(override, loader)
    kept = [override for override in parsed if override.get_key_element().lstrip("+") not in _OF_THE_COMMAND]
    return [list(job) for job in BasicSweeper.split_arguments(kept, None)[0]]


def _require_single(override: Override) -> None:
    """Refuse to sweep over what is settled before there are cells."""
    name = override.get_key_element().lstrip("+")
    whole = ("experiment", "launcher", "fail_fast", *_OF_THE_COMMAND)
    if (name in whole or name.startswith("compare.")) and override.is_sweep_override():
        told = "its grid is read before there are cells" if name == "experiment" else "it holds for the whole sweep"
        raise ConfigError(f"{override.input_line}: expected one value, {told}; run one sweep for each")


def _require_values(override: Override, loader: ConfigLoader) -> None:
    """Refuse to sweep over nothing, such as over a pattern that no option matches."""
    if not override.is_discrete_sweep() or next(override.sweep_string_iterator(), None) is not None:
        return
    options = loader.get_group_options(override.key_or_group)
    told = f"no option matches; known: {', '.join(options)}" if options else "expected at least one value, got none"
    raise ConfigError(f"{override.input_line}: {told}")


def _require_distinct(jobs: list[list[str]]) -> None:
    """Refuse two cells of one configuration: they would share a folder, whatever their tracking is."""
    seen = set()
    for job in jobs:
        made_of = tuple(line for line in job if not line.startswith(("tracking", "hydra.")))
        if made_of in seen:
            raise ConfigError(f"two cells of this sweep are the same: {' '.join(job)}")
        seen.add(made_of)


def _require_names(cells: Sequence[PlannedCell]) -> None:
    """Refuse two options of one name: tables tell them apart, records would not."""
    for axis in AXES:
        options: dict[str, str] = {}
        for cell in cells:
            if axis == "prompt" and cell.conf.prompt.registry is not None:
                continue
            name, choice = str(getattr(cell.conf, axis).name), cell.choices.get(axis, "-")
            other = options.setdefault(name, choice)
            if other != choice:
                raise ConfigError(f"{axis}={other} and {axis}={choice} are both named {name!r}; change one's name")


def _require_judges(cells: Sequence[PlannedCell]) -> None:
    """Refuse cells in which the judge decides and there is none, or nothing to judge by."""
    for lack, remedy, lacks in _NO_JUDGE:
        names = [cell.name for cell in cells if cell.conf.grader.required and lacks(cell.conf)]
        if names:
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            told = f"{lack} in {', '.join(names[:_MOST_NAMED])}{more}"
            raise ConfigError(f"grader.required=true, but {told}; {remedy}, or leave grader.required out")


def _varying(jobs: list[list[str]]) -> list[str]:
    """List the keys whose values differ between jobs."""
    columns = zip(*jobs, strict=True)
    return [_key(column[0]) for column in columns if len(set(column)) > 1]


def _key(line: str) -> str:
    return line.partition("=")[0].lstrip("+")


def _plan(config: DictConfig, job: list[str], varying: Sequence[str], place: int) -> PlannedCell:
    composed = GlobalHydra.instance().config_loader().load_sweep_config(config, job)
    conf = read_config(composed)
    check(conf)
    chosen = composed.hydra.runtime.choices
    choices = {group: str(chosen[group]) for group in GROUPS if group in chosen}
    given = {_key(line): line.partition("=")[2] for line in job}
    varies = {key: given[key] for key in varying if key not in AXES}
    if conf.prompt.registry is not None:
        # Two versions of one prompt are two prompts.
        choices["prompt"] = prompt_name(conf)
        varies.pop("prompt.registry", None)
    parts = fingerprint(conf)
    task = build_task(conf, ingest_base_url="http://unused", api_key=None)
    trials = task.resolve(build_scenario(conf)).k or 0
    return PlannedCell(cell_key(choices, parts), tuple(job), choices, varies, parts, trials, conf, place)


def _interleaved(jobs: list[list[str]]) -> list[int]:
    """Order the jobs so that those to be compared run side by side: a provider that drifts hits them alike."""
    columns = [list(column) for column in zip(*jobs, strict=True)]
    places = [_ranks(column) for column in columns]
    arms = [position for position, column in enumerate(columns) if _key(column[0]).partition(".")[0] in _ARMS]
    others = [position for position in range(len(columns)) if position not in arms]
    return sorted(range(len(jobs)), key=lambda job: [places[column][job] for column in (*others, *arms)])


def _ranks(column: Iterable[str]) -> list[int]:
    """Number the values of one column in the order in which they appear."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in column]
