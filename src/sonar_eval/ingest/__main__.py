"""`python -m sonar_eval.ingest`: the trace ingest on a port of its own, and its keys."""

from __future__ import annotations

import ipaddress
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..transcript.wire import DEFAULT_KEY_HEADER, DEFAULT_PORT

if TYPE_CHECKING:
    from .db import SpanStore

_V = TypeVar("_V")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_DB = click.option(
    "--db",
    default="sqlite:///ingest.db",
    envvar="SONAR_INGEST_DB",
    show_envvar=True,
    show_default=True,
    help="Where spans are kept: sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME.",
)


@click.group(invoke_without_command=True, context_settings={"auto_envvar_prefix": "SONAR_INGEST", "show_default": True})
@click.option("--host", default="127.0.0.1", show_envvar=True, help="Address to listen on.")
@click.option("--port", default=DEFAULT_PORT, show_envvar=True, help="Port to listen on.")
@_DB
@click.option("--key", default=None, show_envvar=True, show_default=False, help="A key beside those in the database.")
@click.option("--key-header", default=DEFAULT_KEY_HEADER, show_envvar=True, help="Header the key comes in.")
@click.option("--tenant", default="local", show_envvar=True, help="Tenant of --key, or of everybody without any key.")
@click.pass_context
def main(context: click.Context, host: str, port: int, db: str, key: str | None, key_header: str, tenant: str) -> None:
    """Take spans in at POST /v1/traces and answer GET /v1/conversations/{id}?tenant=T.

    Without a key it listens on loopback only. Also: GET /v1/conversations?tenant=T, /healthz, /readyz, /metrics,
    /openapi.json.
    """
    context.obj = db
    if context.invoked_subcommand is not None:
        return
    _serve(host, port, db, key, key_header, tenant)


def _serve(host: str, port: int, db: str, key: str | None, key_header: str, tenant: str) -> None:
    from .app import create_app
    from .db import untraced
    from .keys import StoredKeyRing, check_tenant
    from .server import LOOPBACK, listen, make_server

    if not _HEADER_NAME.fullmatch(key_header):
        raise click.UsageError(f"expected the name of a header, got --key-header {key_header!r}")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with _opened(db) as store:
        _check(check_tenant, tenant)
        keys = StoredKeyRing(store.engine, {key: tenant} if key else {}, open_tenant=tenant)
        if keys.is_open and not _is_loopback(host):
            raise click.UsageError(
                f"without a key it listens on loopback only, got --host {host}; "
                f"make one: sonar-eval ingest --db {_shown(db)} keys add --tenant {tenant}, or give --key"
            )
        try:
            listener = listen(host, port)
        except OSError as error:
            raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"sonar-eval ingest on http://{shown}:{listener.getsockname()[1]}, spans in {_shown(db)}", err=True)
        hosts = (*LOOPBACK, shown) if keys.is_open else ()
        # A second time, as uvicorn raises it again after it has stopped.
        with untraced(), suppress(KeyboardInterrupt):
            make_server(create_app(store, keys, key_header=key_header, hosts=hosts)).run([listener])


@main.group()
def keys() -> None:
    """Make, list and revoke keys; only their hashes are kept."""


@keys.command("add")
@click.option("--tenant", required=True, help="The tenant it opens.")
@click.option("--name", default="", help="What it is for.")
@click.pass_obj
def add(db: str, tenant: str, name: str) -> None:
    """Make a key and print it, this once."""
    from .keys import add_key

    with _opened(db) as store:
        click.echo(_check(add_key, store.engine, tenant, name))


@keys.command("list")
@click.pass_obj
def show(db: str) -> None:
    """List keys by the start of their hash."""
    from .keys import list_keys

    with _opened(db) as store:
        for key in list_keys(store.engine):
            state = "revoked" if key.revoked_at else "active"
            made = time.strftime("%Y-%m-%d %H:%M", time.localtime(key.created_at))
            click.echo(f"{key.identity}  {key.tenant}  {state}  {made}  {key.name}".rstrip())


@keys.command("revoke")
@click.argument("identity")
@click.pass_obj
def revoke(db: str, identity: str) -> None:
    """Revoke the key whose hash starts with IDENTITY, as `keys list` shows it."""
    from .keys import revoke_key

    with _opened(db) as store:
        count = revoke_key(store.engine, identity)
    if not count:
        raise click.ClickException(f"no active key starts with {identity!r}; give what `keys list` shows")
    click.echo(f"revoked {identity}")


@main.command("delete")
@click.option("--tenant", default=None, help="Delete what belongs to this tenant.")
@click.option("--conversation", default=None, help="Of that tenant, this conversation only.")
@click.option("--older-than-days", type=click.FloatRange(0), default=None, help="Delete what came longer ago.")
@click.pass_obj
def forget(db: str, tenant: str | None, conversation: str | None, older_than_days: float | None) -> None:
    """Delete spans, and all that was derived from them."""
    if conversation is not None and (tenant is None or older_than_days is not None):
        raise click.UsageError("--conversation goes with --tenant, and with nothing else")
    if tenant is None and older_than_days is None:
        raise click.UsageError("expected --tenant or --older-than-days")
    before = None if older_than_days is None else time.time() - older_than_days * 86400
    with _opened(db) as store:
        count = store.delete(tenant=tenant, conversation_id=conversation, older_than=before)
    click.echo(f"{count} spans deleted")


@contextmanager
def _opened(db: str) -> Iterator[SpanStore]:
    """Open a database, and say in one line what is wrong with it."""
    from sqlalchemy.exc import SQLAlchemyError

    from .db import SpanStore, first_line

    try:
        store = SpanStore(db)
    except ModuleNotFoundError as error:
        raise click.ClickException(f"cannot use {_shown(db)}: {error}; pip install 'sonar-eval[postgres]'") from error
    except SQLAlchemyError as error:
        raise click.ClickException(f"cannot use {_shown(db)}: {first_line(error)}") from error
    except (RuntimeError, ValueError) as error:
        raise click.ClickException(f"cannot use {_shown(db)}: {error}") from error
    try:
        yield store
    except SQLAlchemyError as error:
        raise click.ClickException(f"{_shown(db)} failed: {first_line(error)}") from error
    finally:
        store.close()


def _check(do: Callable[..., _V], *arguments: Any) -> _V:
    try:
        return do(*arguments)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _shown(db: str) -> str:
    """Show a database URL without its password."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(db).render_as_string(hide_password=True)
    except ArgumentError:
        return "the database"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


if __name__ == "__main__":
    main(prog_name="python -m sonar_eval.ingest")
