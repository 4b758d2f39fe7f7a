"""Who may write and read which tenant. Only hashes of keys are held or stored."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from .db.schema import api_keys

log = logging.getLogger(__name__)

_RELOAD_S = 2.0
_IDENTITY = 12
# With the id of a conversation it must fit into an index of PostgreSQL, which ends at 2,700 bytes.
MAX_TENANT_BYTES = 256


class KeyRing:
    """Keys, each of which opens exactly one tenant.

    Without any key there is one tenant, `open_tenant`, for whoever reaches the server: for loopback only.
    """

    def __init__(self, keys: Mapping[str, str] | None = None, *, open_tenant: str = "local") -> None:
        self._tenants = {digest(key): tenant for key, tenant in (keys or {}).items()}
        self._open_tenant = open_tenant

    @property
    def is_open(self) -> bool:
        """Tell whether no key is asked for."""
        return not self._tenants

    async def refresh(self) -> None:
        """Take in what changed elsewhere; to be called before each question."""

    def tenant_of(self, key: str | bytes | None) -> str | None:
        """Return the tenant that `key` opens; None for a key that opens nothing."""
        if self.is_open:
            return self._open_tenant
        given = digest(key or "")
        # Every hash is compared, so that the time taken tells nothing.
        found = [tenant for known, tenant in self._tenants.items() if hmac.compare_digest(known, given)]
        return found[0] if found else None


class StoredKeyRing(KeyRing):
    """Keys out of the database beside those given; one added or revoked elsewhere counts within seconds.

    Once the database has held a key, none is never enough: revoking the last one opens nothing.
    """

    def __init__(self, engine: Engine, keys: Mapping[str, str] | None = None, *, open_tenant: str = "local") -> None:
        super().__init__(keys, open_tenant=open_tenant)
        self._engine = engine
        self._given = dict(self._tenants)
        self._ever = False
        self._loading = False
        self._read_at = 0.0
        self.reload()

    @property
    def is_open(self) -> bool:
        """Tell whether no key is asked for, and none ever was."""
        return not self._tenants and not self._ever

    async def refresh(self) -> None:
        """Read the keys again every other second; without the database, those that are known go on."""
        if self._loading or time.monotonic() - self._read_at < _RELOAD_S:
            return
        self._loading = True
        try:
            await asyncio.to_thread(self.reload)
        except SQLAlchemyError as error:
            log.warning("the keys were not read again: %s", error)
        finally:
            self._read_at = time.monotonic()
            self._loading = False

    def reload(self) -> None:
        """Read the keys now; blocks."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(api_keys.c.digest, api_keys.c.tenant, api_keys.c.revoked_at)).all()
        self._tenants = {**self._given, **{row.digest: row.tenant for row in rows if row.revoked_at is None}}
        self._ever = self._ever or bool(rows)
        self._read_at = time.monotonic()


@dataclass(frozen=True)
class KeyInfo:
    """What may be shown of a key: never the key itself."""

    identity: str
    """The start of its hash."""
    tenant: str
    name: str
    created_at: float
    revoked_at: float | None


def add_key(engine: Engine, tenant: str, name: str) -> str:
    """Make a key for a tenant and return it; this is the only time it is seen.

    Raises `ValueError` for a tenant that no database could keep.
    """
    check_tenant(tenant)
    key = f"sk-sonar-{secrets.token_urlsafe(32)}"
    row = {"digest": digest(key), "tenant": tenant, "name": name, "created_at": time.time()}
    with engine.begin() as connection:
        connection.execute(insert(api_keys), row)
    return key


def check_tenant(tenant: str) -> None:
    """Raise `ValueError` for what cannot be the name of a tenant."""
    if not tenant or "\x00" in tenant or len(tenant.encode("utf-8", "replace")) > MAX_TENANT_BYTES:
        raise ValueError(f"expected a tenant of 1 to {MAX_TENANT_BYTES} bytes, got {tenant[:40]!r}")


def list_keys(engine: Engine) -> list[KeyInfo]:
    """List the keys, oldest first."""
    with engine.connect() as connection:
        rows = connection.execute(select(api_keys).order_by(api_keys.c.created_at)).all()
    return [KeyInfo(row.digest[:_IDENTITY], row.tenant, row.name, row.created_at, row.revoked_at) for row in rows]


def revoke_key(engine: Engine, identity: str) -> int:
    """Revoke the keys whose hash starts with `identity` (12 characters at least); returns how many."""
    if len(identity) < _IDENTITY:
        return 0
    with engine.begin() as connection:
        mine = (api_keys.c.digest.startswith(identity, autoescape=True), api_keys.c.revoked_at.is_(None))
        return connection.execute(update(api_keys).where(*mine).values(revoked_at=time.time())).rowcount


def digest(key: str | bytes) -> str:
    """Hash a key as it is kept; keys are long and random, so that no slow hash is needed."""
    return hashlib.sha256(key if isinstance(key, bytes) else key.encode("utf-8", "surrogateescape")).hexdigest()
