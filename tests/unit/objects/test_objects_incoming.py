"""Several processes open a store on one fresh directory: each ends up with a place of its own."""

from __future__ import annotations

from pathlib import Path

from dray.base.runtime import SystemRuntime
from dray.objects.local.disk import Descriptor, SystemDisk
from dray.objects.local.incoming import IncomingFile


class SweptDisk(SystemDisk):
    """Another process sweeps the first directory that is made, before its maker has opened it."""

    def __init__(self) -> None:
        super().__init__()
        self.swept: list[str] = []

    def open_directory(self, path: str) -> Descriptor:
        if not self.swept:
            self.swept.append(path)
            self.remove_directory(path)
        return super().open_directory(path)


def test_a_place_that_was_taken_for_abandoned_is_made_anew(tmp_path: Path) -> None:
    disk = SweptDisk()
    incoming = IncomingFile.open(disk, str(tmp_path), SystemRuntime(threads=1))
    [place] = (tmp_path / ".dray-incoming").iterdir()
    assert len(disk.swept) == 1
    assert place.name != Path(disk.swept[0]).name
    incoming.close()
