"""Write the Python messages of `src/dray/metadata/etcd/wire` from the `.proto` file that lies there.

Run with no arguments to write the files; `generate()` gives them as text, which a test compares with what
is committed. Only messages are generated: the client makes its calls itself.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from grpc_tools import protoc

SOURCE = Path(__file__).resolve().parent.parent / "src"
WIRE = SOURCE / "dray" / "metadata" / "etcd" / "wire"


def generate() -> dict[str, str]:
    """The generated files, by name."""
    proto = str((WIRE / "etcd.proto").relative_to(SOURCE))
    with TemporaryDirectory() as directory:
        arguments = ["protoc", f"-I{SOURCE}", f"--python_out={directory}", f"--pyi_out={directory}", proto]
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc failed")
        return {path.name: path.read_text() for path in sorted(Path(directory).rglob("*_pb2.py*"))}


if __name__ == "__main__":
    for name, text in generate().items():
        (WIRE / name).write_text(text)
