from array import array
from collections.abc import Iterable, Sequence

from .columns import BytesColumn, Columns, Kept
from .header import BatchHeader, Buffer

HEADER_SIZE: int
LOG_APPEND_TIME: int
HARDWARE_CRC: bool

class Batch:
    position: int
    length: int
    record_count: int
    attributes: int
    min_timestamp: int
    max_timestamp: int
    max_timestamp_delta: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    unfolded: int
    def __init__(
        self,
        *,
        position: int,
        length: int,
        record_count: int,
        attributes: int,
        min_timestamp: int,
        max_timestamp: int,
        max_timestamp_delta: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        unfolded: int,
    ) -> None: ...
    @property
    def codec(self) -> int: ...

def validate(buffer: Buffer, *, max_batch_bytes: int, max_decompressed_bytes: int) -> list[Batch]: ...
def unfolds_to(buffer: Buffer) -> int: ...
def unfolds_at_once(buffer: Buffer) -> int: ...
def records_said(buffer: Buffer) -> int: ...
def find_timestamp(
    batch: Buffer, timestamp: int, *, max_decompressed_bytes: int = ...
) -> tuple[int, int] | None: ...
def patch(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None: ...
def patch_all(
    buffer: bytearray | memoryview, positions_and_offsets: Iterable[tuple[int, int]], leader_epoch: int
) -> None: ...
def restore(buffer: bytearray | memoryview, places: Buffer | array[int], leader_epoch: int) -> int: ...
def sound_headers(
    buffer: Buffer, position: int, from_offset: int, checksums: bool
) -> list[tuple[int, BatchHeader]]: ...
def stamp_append_time(buffer: bytearray | memoryview, batch: Batch, now_ms: int) -> None: ...
def crc32c(buffer: Buffer, initial: int = 0) -> int: ...
def crc32c_software(buffer: Buffer, initial: int = 0) -> int: ...
def uninitialised(size: int) -> bytearray: ...
def decode(buffer: Buffer, *, max_decompressed_bytes: int = ..., sparse: bool = False) -> Columns: ...
def decode_stored(
    batches: Sequence[Buffer],
    base_offsets: Sequence[int],
    *,
    max_decompressed_bytes: int = ...,
    kept: Kept | None = None,
) -> Columns: ...
def decode_keys(
    batches: Sequence[Buffer], base_offsets: Sequence[int], *, max_decompressed_bytes: int = ...
) -> tuple[int, bytearray, BytesColumn]: ...
def encode(
    columns: Columns,
    *,
    start: int = 0,
    stop: int | None = None,
    codec: int = 0,
    level: int | None = None,
    leader_epoch: int = 0,
    batch_bytes: int = ...,
    sparse: bool = False,
) -> bytearray: ...
def recompress(
    buffer: Buffer, codec: int, level: int | None = None, *, max_decompressed_bytes: int = ...
) -> bytearray: ...

class KeyOffsets:
    def __init__(self, secret: Buffer) -> None: ...
    def __len__(self) -> int: ...
    def add(self, keys: BytesColumn, offsets: Buffer, first: int, count: int) -> None: ...
    def offsets(self) -> bytearray: ...
