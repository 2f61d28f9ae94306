# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The compiled core: thin Python faces over crc32c.c, batch.c and unfold.c, over columns.c (in
_columns.pxi) and over keys.c (in _keys.pxi).

`twin.py` says the same in plain Python.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from .columns import BytesColumn, Columns
from .faults import RecordError, RecordFault
from .header import BatchHeader

_new_tuple = tuple.__new__

dray_crc32c_prepare()

# Letting go of the GIL pays when others can use the time: not for the microseconds a small batch takes.
cdef enum:
    WORTH_RELEASING = 256 * 1024
    COMPRESSED_AT_ONCE = 32 * 1024
    UNFOLDED_AT_ONCE = 256 * 1024
    PLAIN_AT_ONCE = 4 * 1024 * 1024
    MEBIBYTE = 1024 * 1024
    RESTORED = 3 * sizeof(int64_t)
    HEADERS_AT_ONCE = 256
    BYTES_AT_ONCE = 4 * 1024 * 1024

HEADER_SIZE = DRAY_HEADER_SIZE
LOG_APPEND_TIME = DRAY_LOG_APPEND_TIME
HARDWARE_CRC = bool(dray_crc32c_is_hardware())


@cython.freelist(64)
@cython.final
cdef class _View:
    """Holds a buffer still while C reads or writes it."""
    cdef Py_buffer buffer
    cdef uint8_t *data
    cdef int64_t size

    def __cinit__(self, source, bint writable=False):
        PyObject_GetBuffer(source, &self.buffer, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.data = <uint8_t *>self.buffer.buf
        self.size = self.buffer.len

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)  # does nothing where none was got


@cython.freelist(256)
@cython.final
cdef class Batch:
    """Facts about one batch that `validate` found good."""
    cdef readonly int64_t position
    cdef readonly int64_t length
    cdef readonly int32_t record_count
    cdef readonly int32_t attributes
    cdef readonly int64_t min_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int32_t max_timestamp_delta
    cdef readonly int64_t producer_id
    cdef readonly int32_t producer_epoch
    cdef readonly int32_t base_sequence
    cdef readonly int64_t unfolded

    def __init__(self, *, int64_t position, int64_t length, int32_t record_count, int32_t attributes,
                 int64_t min_timestamp, int64_t max_timestamp, int32_t max_timestamp_delta,
                 int64_t producer_id, int32_t producer_epoch, int32_t base_sequence, int64_t unfolded):
        self.position = position
        self.length = length
        self.record_count = record_count
        self.attributes = attributes
        self.min_timestamp = min_timestamp
        self.max_timestamp = max_timestamp
        self.max_timestamp_delta = max_timestamp_delta
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.unfolded = unfolded

    @property
    def codec(self):
        return self.attributes & DRAY_CODEC_BITS

    def _facts(self):
        return {
            "position": self.position,
            "length": self.length,
            "record_count": self.record_count,
            "attributes": self.attributes,
            "min_timestamp": self.min_timestamp,
            "max_timestamp": self.max_timestamp,
            "max_timestamp_delta": self.max_timestamp_delta,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "base_sequence": self.base_sequence,
            "unfolded": self.unfolded,
        }

    def __eq__(self, other):
        return self._facts() == (<Batch>other)._facts() if isinstance(other, Batch) else NotImplemented

    __hash__ = None

    def __repr__(self):
        return "Batch(" + ", ".join(f"{name}={value}" for name, value in self._facts().items()) + ")"


@cython.freelist(64)
@cython.final
cdef class _Section:
    """The records of one batch, decompressed, and the header before them. Those that were compressed have
    a `source` of their own."""
    cdef int64_t position
    cdef dray_header header
    cdef object source
    cdef _View view
    cdef uint8_t *data
    cdef int64_t size
    cdef bytearray places  # where the records begin that are wanted; None: all are
    cdef int64_t *at
    cdef int64_t picked


cdef object _error(dray_problem *problem, int64_t position):
    where = f"batch at byte {position}"
    if problem.record >= 0:
        where += f", record {problem.record}"
    return RecordError(RecordFault(problem.fault), f"{where}: {problem.what.decode()}")


cdef _Section _open(object source, _View view, int64_t position, int64_t max_batch_bytes, int64_t limit,
                    bint sparse=False):
    """Check the header of the batch at `position`, and decompress its records."""
    cdef _Section section = _Section.__new__(_Section)
    cdef dray_problem problem
    cdef int answer
    cdef int64_t available = view.size - position
    cdef int64_t start = position + DRAY_HEADER_SIZE

    if available < WORTH_RELEASING:
        answer = dray_read_header(view.data + position, available, max_batch_bytes, sparse, &section.header,
                                  &problem)
    else:
        with nogil:
            answer = dray_read_header(view.data + position, available, max_batch_bytes, sparse, &section.header,
                                      &problem)
    if answer != 0:
        raise _error(&problem, position)
    section.position = position
    if section.header.attributes & DRAY_CODEC_BITS == 0:
        section.view = view
        section.data = view.data + start
        section.size = section.header.size - DRAY_HEADER_SIZE
        return section

    from .compression import decompress  # which needs `uninitialised` from here

    try:
        plain = decompress(
            section.header.attributes & DRAY_CODEC_BITS,
            memoryview(source).cast("B")[start:position + section.header.size],
            limit,
        )
    except RecordError as error:
        raise RecordError(error.fault, f"batch at byte {position}: {error}") from error
    section.source = plain
    section.view = _View(plain)
    section.data = section.view.data
    section.size = section.view.size
    return section


cdef int _walk(_Section section, dray_summary *summary, dray_extent *extent) except -1:
    cdef dray_problem problem
    cdef int answer
    if section.size < WORTH_RELEASING:
        answer = dray_walk(section.data, section.size, &section.header, summary, extent, &problem)
    else:
        with nogil:
            answer = dray_walk(section.data, section.size, &section.header, summary, extent, &problem)
    if answer != 0:
        raise _error(&problem, section.position)
    return 0


def validate(buffer, *, int64_t max_batch_bytes, int64_t max_decompressed_bytes):
    """Check each of the whole batches in `buffer` down to its last record; RecordError names the first
    fault. `max_decompressed_bytes` holds for each batch."""
    cdef _View view = _View(buffer)
    cdef _Section section
    cdef dray_summary summary
    cdef dray_extent extent
    cdef int64_t position = 0
    cdef Batch batch
    cdef list batches = []

    while position < view.size:
        section = _open(buffer, view, position, max_batch_bytes, max_decompressed_bytes)
        memset(&extent, 0, sizeof(extent))
        _walk(section, &summary, &extent)
        batch = Batch.__new__(Batch)
        batch.position = position
        batch.length = section.header.size
        batch.record_count = section.header.record_count
        batch.attributes = section.header.attributes
        batch.min_timestamp = summary.min_timestamp
        batch.max_timestamp = summary.max_timestamp
        batch.max_timestamp_delta = summary.max_timestamp_delta
        batch.producer_id = section.header.producer_id
        batch.producer_epoch = section.header.producer_epoch
        batch.base_sequence = section.header.base_sequence
        batch.unfolded = section.size
        batches.append(batch)
        position += section.header.size
    return batches


def unfolds_to(buffer):
    """What the compressed batches in `buffer` say they decompress to, without decompressing anything: 0 where
    none is compressed, at least 1 otherwise. Honest ones fit a limit of that; a frame may lie."""
    cdef _View view = _View(buffer)
    return dray_unfolds_to(view.data, view.size)


def unfolds_at_once(buffer):
    """`unfolds_to`, or -1 where `validate` would take so long that it should not hold up an event loop. A
    batch that lies has to be decompressed with a limit of what it said."""
    cdef _View view = _View(buffer)
    cdef int64_t unfolded = dray_unfolds_to(view.data, view.size)
    if unfolded > UNFOLDED_AT_ONCE or view.size > (COMPRESSED_AT_ONCE if unfolded else PLAIN_AT_ONCE):
        return -1
    return unfolded


def records_said(buffer):
    """How many records a batch says it has, without looking at them: `validate` looks at no more. -1 where the
    buffer is not one whole batch by its own length."""
    cdef _View view = _View(buffer)
    if view.size < DRAY_HEADER_SIZE:
        return -1
    if <int64_t>dray_get32(view.data + DRAY_AT_LENGTH) + DRAY_AT_LEADER_EPOCH != view.size:
        return -1
    return max(dray_get32(view.data + DRAY_AT_RECORD_COUNT), -1)


def find_timestamp(batch, int64_t timestamp, *, int64_t max_decompressed_bytes=INT32_MAX):
    """Of one whole batch, the first record whose timestamp is at least `timestamp`, as (offset delta,
    timestamp); None if there is none."""
    cdef _Section section = _open(batch, _View(batch), 0, INT32_MAX, max_decompressed_bytes)
    cdef dray_found found
    cdef dray_problem problem
    cdef int answer
    if section.size < WORTH_RELEASING:
        answer = dray_find_timestamp(section.data, section.size, &section.header, timestamp, &found, &problem)
    else:
        with nogil:
            answer = dray_find_timestamp(section.data, section.size, &section.header, timestamp, &found,
                                         &problem)
    if answer != 0:
        raise _error(&problem, 0)
    return None if found.offset_delta < 0 else (found.offset_delta, found.timestamp)


cdef uint8_t *_header_at(_View view, int64_t position) except NULL:
    if position < 0 or position > view.size - DRAY_HEADER_SIZE:
        raise ValueError(f"no batch header at byte {position} of {view.size}")
    return view.data + position


def patch(buffer, int64_t position, int64_t base_offset, int32_t leader_epoch):
    """Give the batch at `position` its offset and epoch, in place: the checksum does not cover them."""
    cdef _View view = _View(buffer, True)
    cdef uint8_t *header = _header_at(view, position)
    dray_put64(header + DRAY_AT_BASE_OFFSET, base_offset)
    dray_put32(header + DRAY_AT_LEADER_EPOCH, leader_epoch)


def patch_all(buffer, positions_and_offsets, int32_t leader_epoch):
    """`patch` for each (position, base offset)."""
    cdef _View view = _View(buffer, True)
    cdef uint8_t *header
    cdef int64_t position, base_offset
    for position, base_offset in positions_and_offsets:
        header = _header_at(view, position)
        dray_put64(header + DRAY_AT_BASE_OFFSET, base_offset)
        dray_put32(header + DRAY_AT_LEADER_EPOCH, leader_epoch)


def restore(buffer, places, int32_t leader_epoch):
    """Make stored batches what is served: check that each is what was stored, and give it its offset and the
    epoch. `places` holds position, length and base offset of each, as native 64-bit numbers. The place of
    the first that is not sound, or -1. The GIL is let go: this is where a consumer that catches up spends
    its processor time."""
    cdef _View view = _View(buffer, True)
    cdef _View listed = _View(places)
    cdef int64_t count = listed.size // RESTORED
    cdef int64_t place[3]
    cdef int64_t number
    cdef int64_t unsound = -1
    cdef uint8_t *header

    if listed.size % RESTORED:
        raise ValueError(f"{listed.size} bytes are no list of places")
    for number in range(count):
        memcpy(place, listed.data + number * RESTORED, RESTORED)
        if place[1] < DRAY_HEADER_SIZE or place[0] < 0 or place[0] > view.size - place[1]:
            raise ValueError(f"no batch of {place[1]} bytes at byte {place[0]} of {view.size}")
    with nogil:
        for number in range(count):
            memcpy(place, listed.data + number * RESTORED, RESTORED)
            header = view.data + place[0]
            if not dray_is_sound(header, place[1]):
                unsound = number
                break
            dray_put64(header + DRAY_AT_BASE_OFFSET, place[2])
            dray_put32(header + DRAY_AT_LEADER_EPOCH, leader_epoch)
    return unsound


def sound_headers(buffer, int64_t position, int64_t from_offset, bint checksums):
    """Where the next batches begin, and their headers, some at a time: as far as they are whole, their headers
    right, their offsets above those before them and at least `from_offset`, and their checksums hold (where
    those are asked for). Nothing where the first is not: `foreign.batches` says what is wrong with it."""
    cdef _View view = _View(buffer)
    cdef int64_t sizes[HEADERS_AT_ONCE]
    cdef int64_t begin = position
    cdef int64_t size
    cdef int count = 0
    cdef int number
    cdef const uint8_t *data
    cdef list found = []

    if position < 0:
        raise ValueError(f"no batch at byte {position}")
    with nogil:
        while count < HEADERS_AT_ONCE and position < view.size and position - begin < BYTES_AT_ONCE:
            data = view.data + position
            size = dray_sound_size(data, view.size - position, from_offset, checksums)
            if size == 0:
                break
            sizes[count] = size
            count += 1
            from_offset = dray_get64(data) + dray_get32(data + DRAY_AT_LAST_OFFSET_DELTA) + 1
            position += size
    for number in range(count):
        data = view.data + begin
        found.append((begin, _new_tuple(BatchHeader, (
            dray_get64(data),
            dray_get32(data + DRAY_AT_LENGTH),
            dray_get32(data + DRAY_AT_LEADER_EPOCH),
            data[DRAY_AT_MAGIC],
            <uint32_t>dray_get32(data + DRAY_AT_CRC),
            dray_get16(data + DRAY_AT_ATTRIBUTES),
            dray_get32(data + DRAY_AT_LAST_OFFSET_DELTA),
            dray_get64(data + DRAY_AT_BASE_TIMESTAMP),
            dray_get64(data + DRAY_AT_MAX_TIMESTAMP),
            dray_get64(data + DRAY_AT_PRODUCER_ID),
            dray_get16(data + DRAY_AT_PRODUCER_EPOCH),
            dray_get32(data + DRAY_AT_BASE_SEQUENCE),
            dray_get32(data + DRAY_AT_RECORD_COUNT),
        ))))
        begin += sizes[number]
    return found


def stamp_append_time(buffer, Batch batch not None, int64_t now_ms):
    """Make `batch` a LogAppendTime batch of `now_ms`, in place, checksum included."""
    cdef _View view = _View(buffer, True)
    cdef uint8_t *header = _header_at(view, batch.position)
    if batch.length < DRAY_HEADER_SIZE or batch.length > view.size - batch.position:
        raise ValueError(f"no batch of {batch.length} bytes at byte {batch.position} of {view.size}")
    batch.attributes |= DRAY_LOG_APPEND_TIME
    batch.min_timestamp = batch.max_timestamp = now_ms
    batch.max_timestamp_delta = 0
    dray_put16(header + DRAY_AT_ATTRIBUTES, batch.attributes)
    dray_put64(header + DRAY_AT_MAX_TIMESTAMP, now_ms)
    dray_seal(header, batch.length)


def crc32c(buffer, uint32_t initial=0):
    """`initial` is the checksum of what came before."""
    cdef _View view = _View(buffer)
    cdef uint32_t crc
    if view.size < WORTH_RELEASING:
        return dray_crc32c(initial, view.data, view.size)
    with nogil:
        crc = dray_crc32c(initial, view.data, view.size)
    return crc


def crc32c_software(buffer, uint32_t initial=0):
    """`crc32c` as processors without the instruction compute it."""
    cdef _View view = _View(buffer)
    return dray_crc32c_software(initial, view.data, view.size)


cpdef bytearray uninitialised(Py_ssize_t size):
    """A bytearray of exactly `size`, holding whatever was in memory: for those who fill it at once."""
    if size < 0:
        raise ValueError("a size is never negative")
    return PyByteArray_FromStringAndSize(NULL, size)


include "_columns.pxi"
include "_keys.pxi"
