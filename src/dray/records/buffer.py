"""What this room takes as bytes."""

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
