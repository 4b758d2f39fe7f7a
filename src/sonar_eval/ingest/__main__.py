"""`python -m sonar_eval.ingest`: the trace ingest on a port of its own."""

from __future__ import annotations

import ipaddress

import click

from ..transcript.wire import DEFAULT_KEY_HEADER, DEFAULT_PORT


@click.command(context_settings={"auto_envvar_prefix": "SONAR_INGEST", "show_default": True})
@click.option("--host", default="127.0.0.1", show_envvar=True, help="Address to listen on.")
@click.option("--port", default=DEFAULT_PORT, show_envvar=True, help="Port to listen on.")
@click.option("--db", default="sqlite:///ingest.db", show_envvar=True, help="Where spans are kept.")
@click.option(
    "--key", default=None, show_envvar=True, show_default=False, help="Key that writers and readers must send."
)
@click.option("--key-header", default=DEFAULT_KEY_HEADER, show_envvar=True, help="Header the key comes in.")
@click.option("--tenant", default="local", show_envvar=True, help="Tenant that the key opens.")
def main(host: str, port: int, db: str, key: str | None, key_header: str, tenant: str) -> None:
    """Take spans in at POST /v1/traces and answer GET /v1/conversations/{id}?tenant=T."""
    if key is None and not _is_loopback(host):
        raise click.UsageError(f"without --key it listens on loopback only, got --host {host}")
    import uvicorn

    from .app import create_app
    from .db import SpanStore
    from .keys import KeyRing

    keys = KeyRing({key: tenant} if key else {}, open_tenant=tenant)
    app = create_app(SpanStore(db), keys, key_header=key_header)
    click.echo(f"sonar-eval ingest on http://{host}:{port} (tenant {tenant}), spans in {db}", err=True)
    uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False, lifespan="off", ws="none")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


if __name__ == "__main__":
    main(prog_name="python -m sonar_eval.ingest")
