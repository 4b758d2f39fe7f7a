"""Who may write and read which tenant."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping


class KeyRing:
    """Keys, of which only hashes are held; each opens exactly one tenant.

    Without any key there is one tenant, `open_tenant`, for whoever reaches the server: for loopback only.
    """

    def __init__(self, keys: Mapping[str, str] | None = None, *, open_tenant: str = "local") -> None:
        self._tenants = {_digest(key): tenant for key, tenant in (keys or {}).items()}
        self._open_tenant = open_tenant

    @property
    def is_open(self) -> bool:
        """Tell whether no key is asked for."""
        return not self._tenants

    def tenant_of(self, key: str | None) -> str | None:
        """Return the tenant that `key` opens; None for a key that opens nothing."""
        if self.is_open:
            return self._open_tenant
        given = _digest(key or "")
        # Every hash is compared, so that the time taken tells nothing.
        found = [tenant for held, tenant in self._tenants.items() if hmac.compare_digest(held, given)]
        return found[0] if found else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
