"""The image's steps are a script: it makes a Dray that runs, from a checkout that it leaves alone."""

from __future__ import annotations

import fnmatch
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "deploy" / "image" / "build.sh"


def run(*arguments: object, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, timeout=timeout, check=False
    )


def test_a_wrong_call_is_one_line_and_makes_nothing(tmp_path: Path) -> None:
    for arguments in ((), (ROOT,), (ROOT, tmp_path / "x", "nothing"), (ROOT, "a", "run", "more")):
        ran = run(*arguments)
        assert ran.returncode == 2
        assert ran.stderr.startswith("usage: ")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    ran = run(ROOT, tmp_path)
    assert ran.returncode == 2
    assert "exists already" in ran.stderr


def test_the_image_is_made_by_the_script() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "RUN /source/deploy/image/build.sh /source /opt/dray\n" in dockerfile
    assert SCRIPT.stat().st_mode & 0o111
    assert 'ENTRYPOINT ["tini", "--", "drayd"]' in dockerfile


def test_the_image_sees_all_that_the_script_reads_and_no_data() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert rules[0] == "*"
    allowed = [rule[1:] for rule in rules if rule.startswith("!")]
    read = set(re.findall(r'"\$source/([A-Za-z./]+)"', SCRIPT.read_text())) | {"deploy/image/build.sh"}
    assert {"src", "pyproject.toml", "setup.py", "LICENSE"} <= read
    assert "requirements" in allowed
    for name in read:
        assert (ROOT / name).exists()
        assert any(fnmatch.fnmatch(name, rule) for rule in allowed), f"{name} is kept from the image"
    assert not any(fnmatch.fnmatch(name, rule) for name in (".git", "dray-data", "tests") for rule in allowed)
