"""The ingest that a process's cells share: embedded, or one that runs already."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..transcript import IngestClient
from ..web import is_loopback
from .build import read_key
from .schema import SweepConf

if TYPE_CHECKING:
    from ..ingest.server import EmbeddedIngest
    from ..transcript.inprocess import InProcessTransport

_OTEL_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_running: EmbeddedIngest | None = None


@dataclass(frozen=True)
class Collector:
    """Where spans go, and are asked back from."""

    base_url: str
    api_key: str | None
    embedded: EmbeddedIngest | None = None

    def client(self, conf: SweepConf) -> IngestClient:
        """Make the client that pulls a cell's transcripts."""
        return IngestClient(
            self.base_url,
            conf.task.tenant,
            api_key=self.api_key,
            api_key_header=conf.ingest.api_key_header,
            quiet_s=conf.ingest.quiet_s,
            settle_timeout_s=conf.ingest.settle_timeout_s,
            transport=self._transport(),
        )

    def _transport(self) -> InProcessTransport | None:
        if self.embedded is None:
            return None
        from ..transcript.inprocess import InProcessTransport

        return InProcessTransport(self.embedded.app, self.embedded.loop)

    def environment(self, conf: SweepConf) -> dict[str, str]:
        """Return the variables by which a bot's `sonar_tracing.init()` finds its way here."""
        variables = {
            "SONAR_ENDPOINT": self.base_url,
            "SONAR_TENANT_ID": conf.task.tenant,
            "SONAR_PROJECT": conf.task.project,
            "SONAR_REDACTION_MODE": "allow",
            "SONAR_SCHEDULE_DELAY_MS": "200",
            "SONAR_MAX_QUEUE_SIZE": "16384",
            "SONAR_MAX_ATTRIBUTE_LENGTH": "200000",
        }
        if self.api_key:
            variables["SONAR_API_KEY"] = self.api_key
            variables["SONAR_API_KEY_HEADER"] = conf.ingest.api_key_header
        return variables


def open_collector(conf: SweepConf) -> Collector:
    """Return the cell's ingest; an embedded one is started once per process and lives as long as it.

    It has to: a process can be traced to one place only, and that is settled when tracing starts.
    """
    if conf.ingest.type == "embedded":
        running = _embedded(conf.task.tenant)
        return Collector(running.base_url, running.api_key, running)
    if not conf.ingest.base_url:
        raise ConfigError("ingest.type=external needs ingest.base_url, e.g. http://127.0.0.1:4319")
    return Collector(conf.ingest.base_url, read_key(conf.ingest.api_key_env, "ingest.api_key_env"))


def _embedded(tenant: str) -> EmbeddedIngest:
    global _running
    if _running is None:
        from ..ingest.server import EmbeddedIngest

        _running = EmbeddedIngest(tenant).start()
        atexit.register(_running.stop)
    if _running.tenant != tenant:
        raise ConfigError(
            f"the embedded ingest of this process serves tenant {_running.tenant!r}, not {tenant!r}; "
            "to sweep over task.tenant use ingest=external"
        )
    return _running


def lead_here(variables: Mapping[str, str], *, embedded: bool) -> None:
    """Set this process's environment so that a bot in it exports to the cell's ingest.

    An embedded ingest has nobody else to serve, so it wins over what was set; one that runs already is
    only a default. OpenTelemetry's own endpoint variables would win over ours and are led here too.
    """
    for name, value in variables.items():
        if embedded:
            os.environ[name] = value
        else:
            os.environ.setdefault(name, value)
    endpoint = variables["SONAR_ENDPOINT"]
    if embedded and any(os.environ.get(name) for name in _OTEL_ENDPOINTS):
        os.environ[_OTEL_ENDPOINTS[0]] = endpoint.rstrip("/") + "/v1/traces"
    if is_loopback(endpoint):
        _exempt_from_proxy("127.0.0.1", "localhost")


def _exempt_from_proxy(*hosts: str) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        listed = [part for part in os.environ.get(name, "").split(",") if part]
        os.environ[name] = ",".join([*listed, *(host for host in hosts if host not in listed)])


async def check_reachable(conf: SweepConf) -> None:
    """Ask an ingest that should be running; raises `ConfigError` when it is not, or refuses the key."""
    if conf.ingest.type != "external":
        return
    try:
        await open_collector(conf).client(conf).fetch("sonar-eval-preflight")
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"ingest: {error}; is it running? (python -m sonar_eval.ingest)") from error
