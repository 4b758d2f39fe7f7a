"""Where configuration is looked for: the user's folders first, then ours."""

from __future__ import annotations

import os
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

VARIABLE = "SONAR_CONF"
# Hydra takes plugins from this namespace only. A package there would be loaded by every Hydra app installed.
SWEEPER = "hydra_plugins.sonar_eval.PlannedSweeper"


def shipped_conf() -> Path:
    """Return the folder of the configuration that comes with the package."""
    here = Path(__file__).resolve().parents[1]
    # Inside a wheel it lies in the package, in a checkout beside src.
    for folder in (here / "conf", here.parents[1] / "conf"):
        if (folder / "sweep.yaml").is_file():
            return folder
    raise RuntimeError(f"sonar_eval's own conf/ was not found near {here}; the installation is broken")


def launch_folder() -> Path:
    """Return the folder the sweep was started in; with `hydra.job.chdir` a job runs in another."""
    return Path(HydraConfig.get().runtime.cwd) if HydraConfig.initialized() else Path.cwd()


def user_confs() -> list[Path]:
    """List the user's folders, the one that counts most last: ./conf, then those in $SONAR_CONF."""
    named = [Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    shipped = shipped_conf()
    found = [folder.resolve() for folder in (launch_folder() / "conf", *named) if folder.is_dir()]
    return [folder for folder in found if folder != shipped]


class UserConfFirst(SearchPathPlugin):
    """Put the user's folders before ours, so that they add options and override shipped ones."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Prepend each folder; the last one prepended is asked first."""
        for folder in user_confs():
            search_path.prepend("sonar-user", f"file://{folder}")


def register() -> None:
    """Make Hydra use it in this process only: a plugin package would meddle with every Hydra app installed."""
    Plugins.instance().register(UserConfFirst)
