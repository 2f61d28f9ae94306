"""The repository's image, built and run without a container engine.

buildah builds the Dockerfile in a chroot and runs what it built there: with the image's user and environment,
a root that is read-only, and no more than what a test mounts into it. Nothing is pulled. Where the Dockerfile
names Python's own image, there is one of the same name made of Debian's packages: the same release and the
same Python.

What differs from a container: processes see those of the machine and its network, and tini is not the first
of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.services.process import ServerProcess
from tests.services.tools import cache_directory, exclusively, missing

ROOT = Path(__file__).parents[2]
DATA = "/var/lib/dray"

_SUITE = "bookworm"
_PACKAGES = ("ca-certificates", "libpython3-dev", "python3", "python3-venv")
_TOOLS = ("buildah", "curl", "mmdebstrap", "unshare")
_BASE_SECONDS = 900
_BUILD_SECONDS = 2400

# buildah puts a file of its own into /run, and takes it away again.
_READ_ONLY = (
    'mount --bind "$0" "$0" && mount -t tmpfs -o mode=755 none "$0/run" '
    '&& mount -o remount,bind,ro "$0" && exec "$@"'
)


@dataclass(frozen=True)
class Image:
    reference: str
    config: dict[str, Any]
    container: str
    root: Path
    """The files of the image, of which nothing that runs can change one."""

    def command(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        volumes: Mapping[str, Path],
        *,
        hostname: str = "localhost",
        entrypoint: Sequence[str] | None = None,
    ) -> list[str]:
        """As `docker run --read-only --cap-drop ALL IMAGE arguments` would be. Spark looks up the name of its
        host, which engines therefore tell the container."""
        command = ["unshare", "--mount", "sh", "-c", _READ_ONLY, str(self.root)]
        command += [*_buildah(), "run", "--isolation", "chroot", "--cap-drop", "ALL", "--hostname", hostname]
        # What the first process of a container is by itself: the parent of all that lose theirs.
        for name, value in {"TINI_SUBREAPER": "", **environment}.items():
            command += ["--env", f"{name}={value}"]
        command += ["--no-hosts"] if "/etc/hosts" in volumes else []
        for place, directory in volumes.items():
            command += ["--volume", f"{directory}:{place}"]
        return [*command, self.container, "--", *(entrypoint or self.config["Entrypoint"]), *arguments]

    def run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        volumes: Mapping[str, Path],
        *,
        before: Sequence[str] = (),
        hostname: str = "localhost",
        timeout: float = 180,
    ) -> str:
        """What a command that ends prints."""
        command = [*before, *self.command(arguments, environment, volumes, hostname=hostname)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout


def volume(directory: Path) -> Path:
    """A directory that belongs to the image's user, as a container's volume does."""
    directory.mkdir(parents=True, exist_ok=True)
    os.chown(directory, 10001, 10001)
    for parent in directory.parents:  # pytest keeps its own to itself
        if parent.stat().st_mode & 0o001 == 0:
            parent.chmod(parent.stat().st_mode | 0o011)
    return directory


class ImageProcess(ServerProcess):
    """A process that `docker run` would start. It keeps its volumes over kill and restart; `before` is what
    enters a network, and `ready` the address that answers 200 when it serves."""

    def __init__(
        self,
        name: str,
        directory: Path,
        image: Image,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        ready: str,
        data: Path | None = None,
        before: Sequence[str] = (),
        hostname: str = "localhost",
    ) -> None:
        super().__init__(name, directory)
        self.image = image
        self.arguments = tuple(arguments)
        self.settings = dict(environment)
        self.before = tuple(before)
        self.hostname = hostname
        self.ready = ready
        self.volumes = {DATA: volume(data or directory / "data"), "/tmp": volume(directory / "tmp")}

    def command(self) -> Sequence[str]:
        started = self.image.command(self.arguments, self.settings, self.volumes, hostname=self.hostname)
        return [*self.before, *started]

    def is_ready(self) -> bool:
        """Asked where it says so, from where it is."""
        ask = ["curl", "--silent", "--fail", "--noproxy", "*", "--max-time", "5", self.ready]
        return subprocess.run([*self.before, *ask], capture_output=True, check=False).returncode == 0

    def terminate(self, timeout: float = 60.0) -> int:
        """The image's signal to its first process, as `docker stop` sends it: the exit code."""
        [first] = [pid for pid in self.processes() if _name_of(pid) == "tini"]
        os.kill(first, signal.Signals[self.image.config["StopSignal"]])
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"{self.name} did not stop in {timeout:.0f} s:\n{self.log_tail()}") from None

    def kill(self) -> None:
        left = list(self.processes()) if self.alive else []
        super().kill()
        for pid in left:  # buildah begins a session of its own
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> Iterator[int]:
        """This one, and all that it started."""
        waiting = [self.pid]
        while waiting:
            pid = waiting.pop()
            yield pid
            with suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    waiting += map(int, (task / "children").read_text().split())

    def inside(self) -> list[int]:
        """Of these, tini and all that it started."""
        found = list(self.processes())
        return found[[_name_of(pid) for pid in found].index("tini") :]


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


# --- build


@cache
def require_image() -> Image:
    """Built from this checkout, or the end of the test."""
    lacking = [name for name in _TOOLS if shutil.which(name) is None]
    if lacking:
        missing(f"needs {' and '.join(lacking)} to build the image: apt-get install {' '.join(lacking)}")
    if os.geteuid() != 0:
        missing("needs root to build and run the image in a chroot")
    with exclusively(_home()):
        (_home() / "tmp").mkdir(
            exist_ok=True
        )  # what is killed leaves directories behind, here and not elsewhere
        _have_base()
        return _have_image(f"localhost/dray:{_digest_of_sources()}")


def _home() -> Path:
    of = hashlib.sha256(" ".join((_SUITE, *_PACKAGES)).encode()).hexdigest()[:12]
    return cache_directory() / f"image-{of}"


def _buildah() -> list[str]:
    home = _home()
    places = ["--root", f"{home}/store", "--runroot", f"{home}/run"]
    return ["env", f"TMPDIR={home}/tmp", "buildah", "--storage-driver", "vfs", *places]


def _run(command: Sequence[str], timeout: float = 300) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout.strip()


def _has(kind: str, name: str) -> bool:
    done = subprocess.run([*_buildah(), "inspect", "--type", kind, name], capture_output=True, check=False)
    return done.returncode == 0


def base_name() -> str:
    """Of the one image that the Dockerfile builds upon."""
    [name] = re.findall(r"^ARG BASE=(\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    return f"docker.io/library/{name}"


def _have_base() -> None:
    if _has("image", base_name()):
        return
    with tempfile.TemporaryDirectory() as context:
        _run(
            [
                "mmdebstrap",
                "--variant=minbase",
                f"--include={','.join(_PACKAGES)}",
                _SUITE,
                f"{context}/base.tar",
            ],
            _BASE_SECONDS,
        )
        (Path(context) / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
        build = [*_buildah(), "bud", "--isolation", "chroot", "--pull-never", "--tag", base_name(), context]
        _run(build, _BASE_SECONDS)


def _have_image(reference: str) -> Image:
    container = reference.rpartition(":")[2]
    if not _has("image", reference):
        for line in _run([*_buildah(), "images", "--format", "{{.Name}}:{{.Tag}}"]).splitlines():
            if line.startswith("localhost/dray:"):  # of older sources: each takes gigabytes
                _run([*_buildah(), "rm", "--all"])
                _run([*_buildah(), "rmi", "--force", line])
        with tempfile.TemporaryDirectory() as directory:
            build = [*_buildah(), "bud", "--isolation", "chroot", "--pull-never", "--tag", reference]
            _run([*build, *_index_of_packages(Path(directory)), str(ROOT)], _BUILD_SECONDS)
    if not _has("container", container):
        _run([*_buildah(), "from", "--pull-never", "--name", container, reference], 900)
        # buildah would put a directory of its own there, over the one that is mounted
        _run([*_buildah(), "config", "--volume", f"{DATA}-", container])
    root = Path(_run([*_buildah(), "mount", container]))
    inspected = json.loads(_run([*_buildah(), "inspect", "--type", "image", reference]))
    return Image(reference, inspected["OCIv1"]["config"], container, root)


def _index_of_packages(directory: Path) -> list[str]:
    """pip in the build is set up as pip is on this machine: mounted while it runs, and not in the image."""
    listed = _run([sys.executable, "-m", "pip", "config", "list"])
    options: dict[str, str] = {}
    for line in sorted(
        listed.splitlines(), key=lambda line: line.startswith(":env:")
    ):  # the environment wins
        name, _, value = line.partition("=")
        options[name.rpartition(".")[2]] = value.strip("'\"")
    options.pop("no-index", None)
    file = directory / "pip.conf"
    file.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in options.items()))
    mounted = {str(file): "/etc/pip.conf"}
    for value in options.values():
        mounted |= {path: path for path in value.split() if path.startswith("/") and Path(path).exists()}
    return [part for source, place in mounted.items() for part in ("--volume", f"{source}:{place}:ro")]


def _digest_of_sources() -> str:
    """Of all that .dockerignore lets into the build, and of the build itself."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    names = ["Dockerfile", ".dockerignore", *(rule[1:] for rule in rules if rule.startswith("!"))]
    digest = hashlib.sha256()
    for name in sorted(names):
        found = [ROOT / name] if (ROOT / name).is_file() else sorted((ROOT / name).rglob("*"))
        for path in found:
            if path.is_file() and path.suffix not in (".so", ".pyc") and path.name != "_core.c":
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
