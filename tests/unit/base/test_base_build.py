"""The name of a build: its version, and the commit that it was made of."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from dray.base import build

COMMIT = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return tmp_path


def test_the_commit_of_a_checkout_is_read_from_its_files(checkout: Path, tmp_path: Path) -> None:
    assert build.commit_of(checkout) is None
    packed = checkout / ".git" / "packed-refs"
    packed.write_text(f"# pack-refs\n{'9' * 40} refs/heads/other/main\n{COMMIT} refs/heads/main\n")
    assert build.commit_of(checkout) == COMMIT
    newer = "2" * 40
    (checkout / ".git" / "refs" / "heads" / "main").write_text(newer + "\n")
    assert build.commit_of(checkout) == newer
    (checkout / ".git" / "HEAD").write_text(COMMIT + "\n")
    assert build.commit_of(checkout) == COMMIT
    assert build.commit_of(tmp_path / "none") is None


def test_a_worktree_has_a_head_of_its_own(checkout: Path, tmp_path: Path) -> None:
    inside = checkout / ".git" / "worktrees" / "beside"
    inside.mkdir(parents=True)
    (inside / "HEAD").write_text("ref: refs/heads/beside\n")
    (inside / "commondir").write_text("../..\n")
    (checkout / ".git" / "refs" / "heads" / "beside").write_text(COMMIT + "\n")
    worktree = tmp_path / "beside"
    worktree.mkdir()
    (worktree / ".git").write_text(f"gitdir: {inside}\n")
    assert build.commit_of(worktree) == COMMIT


@pytest.mark.parametrize(
    ("written", "shown"),
    [(COMMIT, "+g1a2b3c4d"), ("", ""), ("not a commit", "")],
    ids=["a wheel", "nothing known", "something else"],
)
def test_a_wheel_says_its_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str, shown: str
) -> None:
    here = tmp_path / "lib" / "dray" / "base"
    here.mkdir(parents=True)
    (here / build.COMMIT_FILE).write_text(written)
    monkeypatch.setattr(build, "_HERE", here)
    assert build.build_name.__wrapped__() == version("dray") + shown
