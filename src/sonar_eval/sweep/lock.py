"""One process at a time in a folder; the lock goes with the process that holds it, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
from pathlib import Path
from typing import TextIO

log = logging.getLogger(__name__)

_FILE = ".lock"


class FolderLock:
    """Hold a folder for this process until `release`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = (folder / _FILE).open("a+", encoding="utf-8")

    def take(self, *, wait: bool = False) -> str | None:
        """Take the lock; return None, or who holds it.

        With `wait`, wait for whoever holds it. A file system that knows no locks is taken at its word.
        """
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            return self._file.read().strip() or "another process"
        except OSError as error:
            log.warning("%s cannot be locked (%s): see to it that nobody else works there", self._file.name, error)
            return None
        # Its name is a courtesy; a disk that is full must not stop anybody.
        with contextlib.suppress(OSError):
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()} on {socket.gethostname()}")
            self._file.flush()
        return None

    def release(self, *, remove: bool = False) -> None:
        """Let others in; with `remove`, leave no trace of the lock."""
        with contextlib.suppress(OSError):
            if remove:
                os.unlink(self._file.name)
            self._file.close()
