from dray.server.connection import Buffer

def read_records(function: int, ssl: int, buffer: Buffer, /) -> tuple[int, int]: ...
def wake_at(descriptor: int, size: int, /) -> bool: ...
def take(function: int, bio: int, size: int, /) -> bytes: ...
def send_records(
    write: int,
    ssl: int,
    read: int,
    bio: int,
    descriptor: int,
    buffers: list[Buffer],
    limit: int,
    scratch: Buffer,
    /,
) -> tuple[int, bytes, int]: ...
