"""A cache of virtual environments, each with one version of a runtime. The entry point is `EnvironmentCache.open`.

An environment contains the package, and those of its dependencies that the running Python does not provide. A .pth file
appends the folders that the running Python imports from, so that qdebug itself and its packages come from there, and
only the runtime differs. An environment is built in a temporary folder and renamed when it is complete.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from qdebug.errors import QdebugError, UsageError
from qdebug.recording.cache import user_folder

__all__ = [
    "ENVIRONMENTS_LIMIT",
    "TIMEOUT",
    "CommandResult",
    "Environment",
    "EnvironmentCache",
    "UnavailableError",
    "check_disk",
    "default_folder",
    "run_command",
]

ENVIRONMENTS_LIMIT = 5 * 10**9
"""Default size limit of the cache, in bytes."""
TIMEOUT = 1800
"""Default time limit of a recording, in seconds."""

_FULL_DISK = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_PREFIX, _SCRATCH_PREFIX = "env-", ".making-"
_ABANDONED_SECONDS = 86_400
_NOTE = "qdebug.json"
_REASON_CHARACTERS = 300
_CHECK = """\
import importlib, importlib.metadata, sys
import qdebug.running.record
if sys.argv[1]:
    installed = importlib.metadata.version(sys.argv[1])
    if installed != sys.argv[2]:
        sys.exit(f"version {installed} is imported instead")
for name in sys.argv[3:]:
    importlib.import_module(name)
"""


class UnavailableError(QdebugError):
    """A version cannot be installed or imported here, or does not finish in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The result of a child process.

    Args:
        status: Exit status, negative for a signal.
        output: Standard output.
        errors: Standard error.
    """

    status: int
    output: str
    errors: str


def run_command(
    words: Sequence[str], *, on_wait: Callable[[], None] | None = None, timeout: float | None = None
) -> CommandResult:
    """Run a command in a session of its own, so that Ctrl-C reaches only this process, which then ends the command.

    Args:
        words: The command.
        on_wait: Called a few times a second; an exception ends the command and the processes that it started.
        timeout: Time limit in seconds.

    Raises:
        UnavailableError: The command did not finish in time.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(  # noqa: S603  a Python or pip that this module chose
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=_POLL_SECONDS)
                    break
                if on_wait is not None:
                    on_wait()
                if deadline is not None and time.monotonic() > deadline:
                    raise UnavailableError(f"it did not end within {timeout:g} s, the limit of --timeout")
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
            raise
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return CommandResult(status=process.returncode, output=texts[0], errors=texts[1])


_POLL_SECONDS = 0.2


def check_disk(text: str, folder: Path) -> None:
    """Raise an error if the messages of a command say that the disk is full.

    Args:
        text: The messages.
        folder: The folder that the command wrote to.

    Raises:
        QdebugError: The disk is full.
    """
    reason = next((reason for reason in _FULL_DISK if reason.casefold() in text.casefold()), None)
    if reason is not None:
        raise QdebugError(
            f"The folder {str(folder)!r} cannot be written: {reason}.",
            hint="Make room, for example with qdebug bisect --remove-environments or qdebug file prune; then repeat "
            "the command, which reuses finished recordings.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A Python that imports one version of a runtime.

    Args:
        python: Path of the interpreter.
    """

    python: Path

    def command(self, *words: str, variables: Sequence[tuple[str, str]] = ()) -> list[str]:
        """Return a command that runs this Python, isolated from the current folder and PYTHON variables."""
        settings = [f"{name}={value}" for name, value in variables]
        no_bytecode = ["-B"] if sys.dont_write_bytecode else []
        return [*(["/usr/bin/env", *settings] if settings else []), str(self.python), "-I", *no_bytecode, *words]


def default_folder() -> Path:
    """Return the folder of environments in the user's cache folder.

    Raises:
        UsageError: The user has no home folder.
    """
    folder = user_folder()
    if folder is None:
        raise UsageError("There is no cache folder for environments.", hint="Give one: --environments FOLDER.")
    return folder / "environments"


class EnvironmentCache:
    """Environments in one folder, bounded in size.

    Args:
        folder: The folder.
        limit: Size in bytes above which the least recently used environments are removed.
        on_wait: Called while a command runs; an exception ends it.
        timeout: Seconds that the import of a runtime or a recording may take. An installation has pip's own limits.
    """

    def __init__(
        self,
        folder: Path,
        *,
        limit: int = ENVIRONMENTS_LIMIT,
        on_wait: Callable[[], None] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self._folder, self._limit, self._on_wait, self.timeout = folder, limit, on_wait, timeout

    @contextmanager
    def open(self, package: str, version: str, modules: Sequence[str]) -> Iterator[Environment]:
        """Provide an environment, which is created if missing and cannot be removed inside the block.

        Args:
            package: Distribution of the runtime; "" for the running environment as it is.
            version: Version of the distribution.
            modules: Modules that must be importable.

        Raises:
            UnavailableError: The version cannot be installed or imported here.
            QdebugError: The folder cannot be written, or the disk is full.
        """
        path = self._folder / self._name(package, version)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not _is_valid(path, package, version):
                self.prune()
                self._build(path, package, version, modules)
            lock = (path / _NOTE).open()
        except OSError as error:
            check_disk(error.strerror or "", self._folder)
            raise QdebugError(
                f"The folder {str(self._folder)!r} of environments cannot be used: {error.strerror or error}.",
                hint="Give another folder: --environments FOLDER.",
            ) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            with suppress(OSError):  # a cache that several users share may be read-only
                os.utime(path)
            note = json.loads(lock.read())
            if note["problem"]:
                raise UnavailableError(note["problem"])
            yield Environment(python=path / "bin" / "python")

    @staticmethod
    def _name(package: str, version: str) -> str:
        """Return a folder name that depends on package, version, Python, platform and the running environment."""
        facts = [package, version, sys.version, sys.executable, platform.platform(), sysconfig.get_platform()]
        digest = hashlib.sha256(json.dumps([*facts, _import_folders()]).encode()).hexdigest()
        title = re.sub(r"[^A-Za-z0-9_.+-]+", "_", f"{package or 'running'}-{version}".rstrip("-"))
        return f"{_PREFIX}{title}-{digest[:10]}"

    def _build(self, path: Path, package: str, version: str, modules: Sequence[str]) -> None:
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=self._folder))
        try:
            venv.create(scratch, symlinks=True, with_pip=False)
            environment = Environment(python=scratch / "bin" / "python")
            site_folder = next(scratch.glob("lib/python*/site-packages"))
            addition = f"import site; list(map(site.addsitedir, {_import_folders()!r}))\n"
            (site_folder / "qdebug_running.pth").write_text(addition, encoding="utf-8")
            if package:
                self._install(scratch, package, version)
            words = environment.command("-c", _CHECK, package, version, *modules)
            check = run_command(words, on_wait=self._on_wait, timeout=self.timeout)
            check_disk(check.errors, self._folder)
            problem = ""
            if check.status:
                problem = f"it cannot be imported: {_last_line(check.errors) or f'status {check.status}'}"
            note = {"package": package, "version": version, "python": platform.python_version(), "problem": problem}
            (scratch / _NOTE).write_text(json.dumps(note), encoding="utf-8")
            shutil.rmtree(path, ignore_errors=True)
            scratch.rename(path)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    def _install(self, scratch: Path, package: str, version: str) -> None:
        """Install a version with pip, which respects the user's configuration, or with uv if there is no pip."""
        python = str(scratch / "bin" / "python")
        if importlib.util.find_spec("pip") is not None:
            words = [sys.executable, "-m", "pip", "--python", str(scratch), "install", "--only-binary=:all:"]
            words += ["--no-input", "--no-warn-script-location", "--no-compile", "--disable-pip-version-check"]
        elif (uv := shutil.which("uv")) is not None:
            words = [uv, "pip", "install", "--python", python, "--only-binary=:all:"]
        else:
            raise UsageError(
                "The versions cannot be installed, because neither pip nor uv is installed.",
                hint="Install pip: python -m ensurepip.",
            )
        result = run_command([*words, f"{package}=={version}"], on_wait=self._on_wait)
        if result.status:
            check_disk(result.errors + result.output, self._folder)
            raise UnavailableError(f"it cannot be installed: {_pip_reason(result.errors)}")

    def prune(self, limit: int | None = None) -> tuple[int, int]:
        """Remove unused environments, least recently used first, until the folder is within its limit.

        Args:
            limit: Limit in bytes; None for the limit of this cache.

        Returns:
            The number of removed environments, and their total size in bytes.
        """
        limit = self._limit if limit is None else limit
        with suppress(OSError):
            for path in self._folder.glob(f"{_SCRATCH_PREFIX}*"):
                if limit == 0 or time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)
        paths = [path for path in self._folder.glob(f"{_PREFIX}*") if path.is_dir() and not path.is_symlink()]
        paths.sort(key=lambda path: path.stat().st_mtime)
        sizes = {path: _folder_size(path) for path in paths}
        total, count, freed = sum(sizes.values()), 0, 0
        for path in paths:
            if total <= limit:
                break
            if _remove_unused(path):
                total, count, freed = total - sizes[path], count + 1, freed + sizes[path]
        return count, freed


def _is_valid(path: Path, package: str, version: str) -> bool:
    """Return whether an environment exists and still provides the version.

    pip does not install a package that the running environment provides. Such a package may have changed since.
    """
    if not (path / _NOTE).is_file():
        return False
    name = canonicalize_name(package)
    folders = path.glob("lib/python*/site-packages/*.dist-info")
    if not package or any(canonicalize_name(folder.name.split("-")[0]) == name for folder in folders):
        return True
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package) == version
    return False


def _import_folders() -> list[str]:
    """Return the folders that the running Python imports from, without the standard library."""
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    standard |= {f"{folder}/lib-dynload" for folder in standard}
    own = str(Path(__file__).resolve().parents[2])
    folders = [str(Path(entry or ".").resolve()) for entry in sys.path]
    return list(dict.fromkeys([own, *(entry for entry in folders if entry not in standard and Path(entry).is_dir())]))


def _remove_unused(path: Path) -> bool:
    """Remove an environment unless another process uses it. Return whether it is gone."""
    try:
        with (path / _NOTE).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    except FileNotFoundError:
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return False
    return not path.exists()


def _folder_size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat(follow_symlinks=False).st_blocks * 512
    return total


def _pip_reason(text: str) -> str:
    """Return the first error in pip's messages, since the last ones are the least specific."""
    lines = [line.removeprefix("ERROR:").strip() for line in text.splitlines() if line.startswith("ERROR:")]
    reason = re.sub(r" \(from versions: .*\)", "", lines[0] if lines else _last_line(text))
    return reason.rstrip(".")[:_REASON_CHARACTERS]


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:_REASON_CHARACTERS] if lines else ""
