"""Judges to ask: the one that trials were judged by, and any other of the configuration."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..errors import ConfigError
from ..grader import Grader
from ..sweep.app import prepare
from ..sweep.build import build_grader_factory, build_scenario, build_task
from ..sweep.schema import GraderConf, SweepConf
from ..sweep.searchpath import shipped_conf

SEED_STEP = 7919
"""Between the rounds of a judge whose seed is fixed: with the same one it would say the same again."""


@dataclass(frozen=True)
class Judge:
    """Who judges, under the rubric of the cell whose configuration this is."""

    name: str
    conf: SweepConf

    @property
    def repeats(self) -> int:
        """How many answers make one verdict."""
        return self.conf.grader.repeats

    @property
    def digest(self) -> str:
        """Tell apart what may judge differently: the model, the rubric, the threshold."""
        scenario = self.conf.scenario
        told = [asdict(self.conf.grader), scenario.rubric, scenario.reference]
        return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:12]

    def grader(self, round_number: int) -> Grader:
        """Make the grader of a round; raises `ConfigError` when it cannot judge by this rubric."""
        task = build_task(self.conf, ingest_base_url="http://unused", api_key=None)
        scenario = task.resolve(build_scenario(self.conf))
        make = build_grader_factory(self.conf)
        if make is None or not scenario.grader_rubric:
            raise ConfigError(f"scenario {scenario.name!r}: nobody judged it (grader.type=none, or no rubric)")
        llm = scenario.grader_llm
        if llm is not None and llm.seed is not None:
            scenario = replace(scenario, grader_llm=replace(llm, seed=llm.seed + SEED_STEP * round_number))
        return make(scenario)


def judge_name(conf: GraderConf) -> str:
    """Name a judge as people know it."""
    return conf.llm.name if conf.llm is not None else conf.type


def second_grader(name: str) -> GraderConf:
    """Find a judge by the name of a file in conf/grader or conf/model; raises `ConfigError` when it is neither."""
    prepare()
    try:
        with initialize_config_dir(str(shipped_conf()), version_base="1.3"):
            graders, models = _options("grader"), _options("model")
            if name in graders:
                found = _typed(compose("sweep", [f"grader={name}"]).grader)
            elif name in models:
                model = _typed(compose("sweep", [f"model={name}"]).model)
                found = GraderConf("llm", replace(model, temperature=0.0))
            else:
                known = f"graders: {', '.join(graders)}; models: {', '.join(models)}"
                raise ConfigError(f"--second-model: no {name!r} in conf/grader or conf/model; {known}")
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"--second-model {name}: {' '.join(str(error).split())}") from error
    if found.type == "none":
        raise ConfigError(f"--second-model: grader {name!r} judges nothing")
    if found.llm is not None and found.llm.provider == "offline":
        raise ConfigError(f"--second-model: model {name!r} is scripted to play the bot and cannot judge; try offline")
    return cast(GraderConf, found)


def _options(group: str) -> list[str]:
    loader = GlobalHydra.instance().config_loader()
    return sorted(loader.get_group_options(group))


def _typed(node: DictConfig) -> Any:
    return OmegaConf.to_object(node)


def judged_by(conf: SweepConf, other: GraderConf | None = None) -> Judge:
    """Return the judge of a cell, or another one that judges by the same rubric and threshold."""
    if other is None:
        return Judge(judge_name(conf.grader), conf)
    grader = replace(other, threshold=conf.grader.threshold, required=conf.grader.required)
    return Judge(judge_name(other), replace(conf, grader=grader))
