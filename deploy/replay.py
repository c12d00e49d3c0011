"""Follows a Dockerfile without a container engine: its steps in a fresh root filesystem, then its entry point.

Needs Linux, root and debootstrap. The base image is replaced by a new Debian with a Python prefix copied to /usr/local,
which is what the slim Python images are. Packages come from where this machine's apt and pip take theirs. Knows nothing
of telegrad but what the Dockerfile says, and nothing of layers, caches or the NVIDIA runtime.

    python deploy/replay.py --arg VARIANT=cpu --env TELEGRAD_TOKEN=a-long-secret --env TELEGRAD_PORT=18000
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DOCKERFILE = REPOSITORY / "deploy" / "Dockerfile"
# what CPython's slim images hold beside a minimal Debian
LIBRARIES = (
    "ca-certificates,netbase,tzdata,libssl3,libsqlite3-0,libffi8,zlib1g,libbz2-1.0,liblzma5,libreadline8,libuuid1"
)
MACHINE_FILES = ["/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"]
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_SECONDS = 60
STOP_SECONDS = 30


@dataclass(frozen=True)
class Step:
    """One instruction: its keyword and the rest of the line, continuation lines joined."""

    keyword: str
    text: str


@dataclass
class Stage:
    """A root filesystem under construction and the settings that its next step runs with."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    args: dict[str, str] = field(default_factory=dict)
    user: str = "0"
    cwd: str = "/"
    entry: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)


def parse(text: str) -> list[Step]:
    """Split a Dockerfile into its instructions."""
    kept = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", "\n".join(kept))
    split = (line.strip().split(None, 1) for line in joined.splitlines() if line.strip())
    return [Step(words[0].upper(), words[1]) for words in split]


def exec_form(text: str) -> list[str]:
    """Read the JSON array of an exec-form instruction; a shell form would swallow signals, so it is refused."""
    if not text.startswith("["):
        raise SystemExit(f"replay: exec form (a JSON array) is needed, got {text!r}")
    return [str(word) for word in json.loads(text)]


def health_command(text: str) -> list[str]:
    """The command of a HEALTHCHECK, without its timing options."""
    return exec_form(text.partition("CMD")[2].strip())


def machine_pip() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_")}


def debian_source() -> tuple[str, str]:
    """This machine's Debian mirror and release, without the security and update suites."""
    line = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]
    for target in subprocess.check_output(line, text=True).splitlines():
        mirror, release = target.split()
        if "-" not in release:
            return mirror, release
    raise SystemExit("replay: apt has no package list; run apt-get update")


def base_filesystem(root: Path, python: Path) -> None:
    """Make the stand-in for the base image: a minimal Debian and a Python under /usr/local."""
    mirror, release = debian_source()
    subprocess.run(["debootstrap", "--variant=minbase", f"--include={LIBRARIES}", release, str(root), mirror],
                   check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    unneeded = shutil.ignore_patterns("__pycache__", "test", "site-packages")
    shutil.copytree(python, root / "usr/local", symlinks=True, dirs_exist_ok=True, ignore=unneeded)
    (root / "usr/local/bin/python").unlink(missing_ok=True)
    (root / "usr/local/bin/python").symlink_to("python3")
    subprocess.run(["chroot", str(root), "/sbin/ldconfig"], check=True)


def command(stage: Stage, words: Sequence[str], binds: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The host's command line that runs ``words`` in the stage, in a mount namespace that ends with it."""
    root = shlex.quote(str(stage.root))
    mounts = [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
    for path in filter(os.path.exists, binds):
        target = f"{root}{shlex.quote(path)}"
        make = "mkdir -p" if os.path.isdir(path) else f"mkdir -p $(dirname {target}) && touch"
        mounts.append(f"{make} {target} && mount --bind {shlex.quote(path)} {target}")
    settings = [f"{name}={value}" for name, value in {**stage.args, **stage.env, **env}.items()]
    inside = ["chroot", f"--userspec={stage.user}:{stage.user}", str(stage.root), "/usr/bin/env", "-i", *settings,
              "/bin/sh", "-c", 'cd "$0" && exec "$@"', stage.cwd, *words]  # fmt: skip
    return ["unshare", "--mount", "sh", "-ec", "; ".join([*mounts, 'exec "$@"']), "sh", *inside]


def copy(stage: Stage, text: str, stages: Mapping[str, Stage]) -> None:
    words = text.split()
    source_root = REPOSITORY
    if words[0].startswith("--from="):
        source_root = stages[words.pop(0).removeprefix("--from=")].root
    *sources, target = words
    destination = stage.root / os.path.join(stage.cwd, target).lstrip("/")
    for source in sources:
        origin = source_root / source.lstrip("/")
        if origin.is_dir():
            shutil.copytree(origin, destination, symlinks=True, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
        else:
            destination.mkdir(parents=True, exist_ok=True)
            shutil.copy2(origin, destination)


def perform(stage: Stage, step: Step, stages: Mapping[str, Stage], given: Mapping[str, str], binds: list[str]) -> None:
    """Do one instruction to a stage."""
    match step.keyword:
        case "ARG":
            name, _, default = step.text.partition("=")
            stage.args[name] = given.get(name, default)
        case "ENV":
            name, _, value = step.text.partition("=")
            stage.env[name] = value
        case "WORKDIR":
            stage.cwd = step.text
            (stage.root / step.text.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "USER":
            stage.user = step.text
        case "COPY":
            copy(stage, step.text, stages)
        case "RUN":
            line = command(stage, ["/bin/sh", "-c", step.text], [*MACHINE_FILES, *binds], machine_pip())
            if (status := subprocess.run(line).returncode) != 0:
                raise SystemExit(f"replay: RUN {step.text}: ended with status {status}")
        case "ENTRYPOINT":
            stage.entry = exec_form(step.text)
        case "HEALTHCHECK":
            stage.health = health_command(step.text)
        case "EXPOSE":
            pass
        case _:
            raise SystemExit(f"replay: {step.keyword} is not understood")


def build(steps: Sequence[Step], work: Path, python: Path, given: Mapping[str, str], binds: list[str]) -> Stage:
    """Run every step; the last stage is the image."""
    base_filesystem(work / "base", python)
    stages: dict[str, Stage] = {}
    stage = Stage(work)
    for step in steps:
        print(f"{step.keyword} {step.text}", flush=True)
        if step.keyword != "FROM":
            perform(stage, step, stages, given, binds)
            continue
        name = step.text.partition(" AS ")[2] or "image"
        subprocess.run(["cp", "--archive", str(work / "base"), str(work / name)], check=True)  # device nodes too
        stages[name] = stage = Stage(work / name, env={"PATH": DEFAULT_PATH, "HOME": "/root"})
    return stage


def serve(stage: Stage, env: Mapping[str, str]) -> None:
    """Start the entry point, wait until the health check passes, stop it with SIGTERM; nothing may be left."""
    settings = {"HOME": stage.cwd, **env}
    server = subprocess.Popen(command(stage, stage.entry, ["/etc/resolv.conf"], settings))
    try:
        wait_healthy(stage, server, settings)
        owner = Path(f"/proc/{server.pid}").stat().st_uid
        print(f"healthy: the server runs as user {owner}, in {len(processes(stage))} processes", flush=True)
        server.send_signal(signal.SIGTERM)
        code = server.wait(STOP_SECONDS)
    finally:
        server.kill()
        server.wait()
    print(f"after SIGTERM: status {code}, {len(processes(stage))} processes left", flush=True)
    if owner == 0 or code != 0 or processes(stage):
        raise SystemExit("replay: the server must not be root, and must end by itself with all it started")


def processes(stage: Stage) -> list[int]:
    """The processes whose root is the stage's."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry / "root") == str(stage.root):
                found.append(int(entry.name))
    return found


def wait_healthy(stage: Stage, server: subprocess.Popen[bytes], env: Mapping[str, str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    check = command(stage, stage.health, [], env)
    while subprocess.run(check, stderr=subprocess.DEVNULL).returncode != 0:
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("replay: the health check did not pass")
        time.sleep(0.2)


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="a build argument")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the entry point")
    parser.add_argument("--bind", action="append", default=[], metavar="PATH", help="a path of this machine pip needs")
    parser.add_argument("--python", type=Path, default=Path(sys.base_prefix), help="a Python prefix for /usr/local")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    chosen = options(argv)
    given = dict(pair.split("=", 1) for pair in chosen.arg)
    with tempfile.TemporaryDirectory(prefix="replay-") as work:
        image = build(parse(DOCKERFILE.read_text()), Path(work), chosen.python, given, chosen.bind)
        serve(image, dict(pair.split("=", 1) for pair in chosen.env))


if __name__ == "__main__":
    main()
