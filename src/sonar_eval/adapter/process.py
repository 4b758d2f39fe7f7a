"""Starting a bot's own process, and making sure that it ends."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import HarnessError

_LAST_WORDS = 600
_STRAGGLERS_S = 2.0
# Waits until the pipe from this process is closed, which it is however this process ends, then ends the group.
_GUARD = 'read -r _; kill -s TERM -- "-$1"; sleep 2; kill -s KILL -- "-$1"'


class BotProcess:
    """Run `command` (with `{port}` filled in) until it accepts connections on a free loopback port.

    `environment` is added to this process's own. Raises `HarnessError` that quotes what it printed last
    when it ends early or does not listen within `start_timeout_s`. It ends with this process, even when that is
    killed.
    """

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        self._command = shlex.split(command) if isinstance(command, str) else list(command)
        self._environment = dict(environment or {})
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._log: Path | None = None
        self.port = 0

    @property
    def base_url(self) -> str:
        """The address the process listens on."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it and wait until it listens; does nothing when it runs already."""
        if self._process is not None and self._process.poll() is None:
            return
        await self.stop()
        self.port = _free_port()
        spawned = asyncio.ensure_future(asyncio.to_thread(self._spawn))
        try:
            await asyncio.shield(spawned)
            await self._until_it_listens()
        except BaseException:
            # What a thread is still starting has to be there before it can be ended.
            await asyncio.wait([spawned])
            await self.stop()
            raise

    async def _until_it_listens(self) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while not await self._listens():
            if self._process is None or self._process.poll() is not None:
                raise HarnessError(f"the bot's process ended before it listened{self.last_words()}")
            if time.monotonic() > deadline:
                raise HarnessError(
                    f"the bot's process did not listen on port {self.port} within "
                    f"{self._start_timeout_s:g} s{self.last_words()}"
                )
            await asyncio.sleep(0.05)

    def _spawn(self) -> None:
        handle, name = tempfile.mkstemp(prefix="sonar-bot-", suffix=".log")
        self._log = Path(name)
        command = [part.replace("{port}", str(self.port)) for part in self._command]
        try:
            self._process = subprocess.Popen(
                command,
                stdout=handle,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self._environment},
                # A group of its own, so that a script goes together with the bot it started.
                start_new_session=True,
            )
        except OSError as error:
            raise HarnessError(f"cannot start the bot with {shlex.join(command)!r}: {error}") from error
        finally:
            os.close(handle)
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "sh", str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def stop(self, *, patience_s: float = 10.0) -> None:
        """Ask it to end, then make it; returns when it is gone."""
        process, self._process = self._process, None
        guard, self._guard = self._guard, None
        if guard is not None:
            await asyncio.to_thread(_dismiss, guard)
        if process is not None:
            await asyncio.to_thread(_end, process, patience_s)
        if self._log is not None:
            self._log.unlink(missing_ok=True)

    def last_words(self) -> str:
        """Quote the end of what the process printed, for an error message."""
        if self._log is None or not self._log.is_file():
            return ""
        text = self._log.read_text(encoding="utf-8", errors="replace").strip()
        return f"; it printed last: {text[-_LAST_WORDS:]}" if text else ""


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    # Before its pipe is closed: it would take that for the end of this process.
    guard.kill()
    guard.wait()
    if guard.stdin is not None:
        guard.stdin.close()


def _end(process: subprocess.Popen[bytes], patience_s: float) -> None:
    with suppress(ProcessLookupError):
        # Raised as soon as nothing of the group is left.
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            _outlive(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _outlive(group: int) -> None:
    """Give what a script started a moment more than the script."""
    deadline = time.monotonic() + _STRAGGLERS_S
    while time.monotonic() < deadline:
        os.killpg(group, 0)
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
