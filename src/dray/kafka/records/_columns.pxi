# Part of _core.pyx: batches into columns, and columns into batches.

cdef inline void *_start_of(bytearray buffer) noexcept:
    return <void *>PyByteArray_AsString(buffer)


cdef object _new_bytes_column(dray_bytes_column *column, int64_t count, int64_t size):
    """Room for `count` values of `size` bytes together. The validity starts as null throughout."""
    offsets, data, validity = uninitialised(4 * (count + 1)), uninitialised(size), bytearray((count + 7) // 8)
    column.offsets = <int32_t *>_start_of(offsets)
    column.offsets[0] = 0
    column.data = <uint8_t *>_start_of(data)
    column.validity = <uint8_t *>_start_of(validity)
    column.size = size
    return BytesColumn(offsets, data, validity)


cdef list _open_all(buffer, dray_extent *extent, int64_t max_decompressed_bytes, bint sparse):
    """The sections of all batches, each checked to its last record, and what they take together."""
    cdef _View view = _View(buffer)
    cdef _Section section
    cdef list sections = []
    cdef dray_summary summary
    cdef int64_t position = 0

    memset(extent, 0, sizeof(extent[0]))
    while position < view.size:
        section = _open(buffer, view, position, INT32_MAX, max_decompressed_bytes, sparse)
        _walk(section, &summary, extent)
        sections.append(section)
        position += section.header.size
        if section.view is not view:
            max_decompressed_bytes -= section.size
    _check_fits(extent)
    return sections


cdef int _check_fits(dray_extent *extent) except -1:
    if max(extent.records, extent.headers, extent.key_bytes, extent.value_bytes, extent.header_key_bytes,
           extent.header_value_bytes) >= INT32_MAX:
        raise RecordError(RecordFault.TOO_LARGE, "the records are too many for columns of 32-bit offsets")
    return 0


def decode(buffer, *, int64_t max_decompressed_bytes=INT32_MAX, bint sparse=False):
    """Columns of the records of all batches in `buffer`, which are checked as `validate` does.
    `max_decompressed_bytes` holds for all of them together. `sparse`: batches may lack records, as those of
    a log that was compacted by key, and be of transactions; `attributes` leave out what such a log says of
    both."""
    cdef dray_extent extent
    cdef list sections = _open_all(buffer, &extent, max_decompressed_bytes, sparse)
    return _columns_of(sections, &extent)


cdef object _columns_of(list sections, dray_extent *needed):
    cdef _Section section
    cdef dray_extent extent = needed[0], filled
    cdef dray_columns into
    cdef int64_t count = extent.records
    cdef int answer

    memset(&filled, 0, sizeof(filled))
    into.row_count = count
    into.header_count = extent.headers
    offsets, timestamps, producer_ids = [uninitialised(8 * count) for _ in range(3)]
    epochs, sequences, attributes = [uninitialised(4 * count) for _ in range(3)]
    headers = uninitialised(4 * (count + 1))
    into.offsets = <int64_t *>_start_of(offsets)
    into.timestamps = <int64_t *>_start_of(timestamps)
    into.producer_ids = <int64_t *>_start_of(producer_ids)
    into.producer_epochs = <int32_t *>_start_of(epochs)
    into.base_sequences = <int32_t *>_start_of(sequences)
    into.attributes = <int32_t *>_start_of(attributes)
    into.headers = <int32_t *>_start_of(headers)
    into.headers[0] = 0
    columns = Columns(
        count,
        extent.headers,
        offsets,
        timestamps,
        producer_ids,
        epochs,
        sequences,
        attributes,
        _new_bytes_column(&into.keys, count, extent.key_bytes),
        _new_bytes_column(&into.values, count, extent.value_bytes),
        headers,
        _new_bytes_column(&into.header_keys, extent.headers, extent.header_key_bytes),
        _new_bytes_column(&into.header_values, extent.headers, extent.header_value_bytes),
    )
    for section in sections:
        if section.places is not None:
            with nogil:
                answer = dray_fill_picked(section.data, section.size, &section.header, section.at,
                                          section.picked, &into, &filled)
        elif section.size < WORTH_RELEASING:
            answer = dray_fill(section.data, section.size, &section.header, &into, &filled)
        else:
            with nogil:
                answer = dray_fill(section.data, section.size, &section.header, &into, &filled)
        if answer != 0:
            raise BufferError("the batches were changed while they were decoded")
    return columns


@cython.final
cdef class _Source:
    """The buffers of Columns, held still, each seen to be as long as it must be."""
    cdef dray_columns columns
    cdef list views

    def __cinit__(self, columns):
        cdef int64_t rows = columns.row_count, headers = columns.header_count
        self.views = []
        if not (0 <= rows < INT32_MAX and 0 <= headers < INT32_MAX):
            raise ValueError("columns hold less than 2^31 rows and headers")
        self.columns.row_count = rows
        self.columns.header_count = headers
        self.columns.offsets = <int64_t *>self.hold(columns.offsets, 8 * rows)
        self.columns.timestamps = <int64_t *>self.hold(columns.timestamps, 8 * rows)
        self.columns.producer_ids = <int64_t *>self.hold(columns.producer_ids, 8 * rows)
        self.columns.producer_epochs = <int32_t *>self.hold(columns.producer_epochs, 4 * rows)
        self.columns.base_sequences = <int32_t *>self.hold(columns.base_sequences, 4 * rows)
        self.columns.attributes = <int32_t *>self.hold(columns.attributes, 4 * rows)
        self.columns.headers = <int32_t *>self.hold(columns.headers, 4 * (rows + 1))
        self.hold_bytes(&self.columns.keys, columns.keys, rows)
        self.hold_bytes(&self.columns.values, columns.values, rows)
        self.hold_bytes(&self.columns.header_keys, columns.header_keys, headers)
        self.hold_bytes(&self.columns.header_values, columns.header_values, headers)

    cdef uint8_t *hold(self, buffer, int64_t least) except? NULL:
        cdef _View view = _View(buffer)
        if view.size < least:
            raise ValueError("a buffer of the columns is too short for their rows")
        self.views.append(view)
        return view.data

    cdef int hold_bytes(self, dray_bytes_column *into, column, int64_t count) except -1:
        cdef _View data = _View(column.data)
        self.views.append(data)
        into.data = data.data
        into.size = data.size
        into.offsets = <int32_t *>self.hold(column.offsets, 4 * (count + 1))
        into.validity = NULL
        if column.validity is not None:
            into.validity = self.hold(column.validity, (count + 7) // 8)
        return 0


def encode(columns, *, int64_t start=0, stop=None, int codec=0, level=None, int32_t leader_epoch=0,
           int64_t batch_bytes=MEBIBYTE, bint sparse=False):
    """Batches of the rows from `start` to `stop`. A batch ends where the next row cannot follow (its offset
    is not the next one, or it came from another producer, another idempotent batch, or by another kind of
    timestamp) and where its records would exceed `batch_bytes` uncompressed. `sparse`: a batch goes on over
    offsets that have no row, and over producers, and carries none: its records were not sent like that."""
    from .compression import Codec, compress

    cdef _Source source = _Source(columns)
    cdef dray_columns *from_ = &source.columns
    from_.sparse = sparse
    cdef dray_plan plan
    cdef const char *wrong
    cdef int answer
    cdef int64_t end = from_.row_count if stop is None else stop
    cdef int64_t row = start, run = start, target = min(batch_bytes, INT32_MAX - DRAY_HEADER_SIZE), size
    cdef int32_t base_sequence
    cdef bytearray batch
    cdef uint8_t *data
    cdef list batches = []

    if not 0 <= start <= end <= from_.row_count:
        raise ValueError(f"no rows {start} to {end} in {from_.row_count}")
    Codec(codec)
    while row < end:
        with nogil:
            wrong = dray_plan_batch(from_, row, end, target, &plan)
        if wrong != NULL:
            raise ValueError(f"row {row + plan.row_count}: {wrong.decode()}")
        batch = uninitialised(DRAY_HEADER_SIZE + plan.section_size)
        data = <uint8_t *>_start_of(batch)
        with nogil:
            answer = dray_write_section(from_, row, &plan, data + DRAY_HEADER_SIZE)
        if answer != 0:
            raise BufferError("the columns were changed while they were encoded")
        if codec != 0:
            section = compress(codec, memoryview(batch)[DRAY_HEADER_SIZE:], level)
            batch = _behind_header(section)
            data = <uint8_t *>_start_of(batch)
        size = len(batch) - DRAY_HEADER_SIZE
        # Pieces of one idempotent batch go on counting from where it started.
        if not _same_producer_batch(from_, run, row):
            run = row
        base_sequence = from_.base_sequences[row]
        if from_.producer_ids[row] >= 0:
            base_sequence = <int32_t>((base_sequence + (row - run)) & INT32_MAX)
        dray_write_header(from_, row, &plan, size, codec, base_sequence, leader_epoch, data)
        dray_seal(data, DRAY_HEADER_SIZE + size)
        batches.append(batch)
        row += plan.row_count
    return batches[0] if len(batches) == 1 else bytearray().join(batches)


cdef bint _same_producer_batch(dray_columns *columns, int64_t first, int64_t second) noexcept:
    return (columns.producer_ids[first] == columns.producer_ids[second]
            and columns.producer_epochs[first] == columns.producer_epochs[second]
            and columns.base_sequences[first] == columns.base_sequences[second]
            and columns.offsets[second] - columns.offsets[first] == second - first)


cdef bytearray _behind_header(section):
    """A batch with room for its header before `section`."""
    cdef _View view = _View(section)
    if view.size > INT32_MAX - DRAY_HEADER_SIZE:
        raise RecordError(RecordFault.TOO_LARGE, "the records are too many for a batch")
    batch = uninitialised(DRAY_HEADER_SIZE + view.size)
    memcpy(<uint8_t *>_start_of(batch) + DRAY_HEADER_SIZE, view.data, view.size)
    return batch


def recompress(buffer, int codec, level=None, *, int64_t max_decompressed_bytes=INT32_MAX):
    """The same batches with another codec. A batch that has that codec already stays as it is."""
    from .compression import Codec, compress

    cdef _View view = _View(buffer)
    cdef _Section section
    cdef bytearray batch
    cdef uint8_t *data
    cdef int64_t position = 0
    cdef list batches = []

    Codec(codec)
    while position < view.size:
        section = _open(buffer, view, position, INT32_MAX, max_decompressed_bytes)
        if section.header.attributes & DRAY_CODEC_BITS == codec:
            batch = uninitialised(section.header.size)
            memcpy(_start_of(batch), view.data + position, section.header.size)
        else:
            plain = section.source
            if plain is None:
                plain = memoryview(buffer).cast("B")[position + DRAY_HEADER_SIZE:position + section.header.size]
            batch = _behind_header(compress(codec, plain, level))
            data = <uint8_t *>_start_of(batch)
            memcpy(data, view.data + position, DRAY_HEADER_SIZE)
            dray_put32(data + DRAY_AT_LENGTH, <int32_t>(len(batch) - DRAY_PREFIX_SIZE))
            dray_put16(data + DRAY_AT_ATTRIBUTES, (section.header.attributes & ~DRAY_CODEC_BITS) | codec)
            dray_seal(data, len(batch))
        batches.append(batch)
        position += section.header.size
    return batches[0] if len(batches) == 1 else bytearray().join(batches)
