# Part of _core.pyx: what compaction by key asks of records.

cdef int _pick(list sections, kept, dray_extent *extent) except -1:
    """Note in each section where the records begin that stay, and what those take."""
    cdef _Section section
    cdef _View offsets = _View(kept.offsets)
    cdef dray_kept wanted

    wanted.offsets = <const int64_t *>offsets.data
    wanted.count = offsets.size // sizeof(int64_t)
    wanted.tombstones_below = kept.tombstones_below
    wanted.last = kept.last
    wanted.keyless = kept.keyless
    memset(extent, 0, sizeof(extent[0]))
    for section in sections:
        section.places = uninitialised(section.header.record_count * sizeof(int64_t))
        section.at = <int64_t *>_start_of(section.places)
        with nogil:
            section.picked = dray_pick(section.data, section.size, &section.header, &wanted, section.at, extent)
        if section.picked < 0:
            raise BufferError("the batches were changed while they were decoded")
    return 0


def decode_keys(buffer, *, int64_t max_decompressed_bytes=INT32_MAX, bint sparse=False):
    """The number of records of all batches in `buffer`, their offsets, and their keys as a column. Every record
    is checked as `decode` does."""
    cdef _Section section
    cdef dray_extent extent, filled
    cdef dray_columns into
    cdef int answer
    cdef list sections = _open_all(buffer, &extent, max_decompressed_bytes, sparse)

    memset(&filled, 0, sizeof(filled))
    _check_fits(&extent)
    into.row_count = extent.records
    offsets = uninitialised(8 * extent.records)
    into.offsets = <int64_t *>_start_of(offsets)
    keys = _new_bytes_column(&into.keys, extent.records, extent.key_bytes)
    for section in sections:
        with nogil:
            answer = dray_fill_keys(section.data, section.size, &section.header, &into, &filled)
        if answer != 0:
            raise BufferError("the batches were changed while they were decoded")
    return extent.records, offsets, keys


@cython.final
cdef class KeyOffsets:
    """The last offset of every key, of rows that come piece by piece. `secret`: 16 bytes that no producer
    knows, or it could choose keys that make this slow."""
    cdef dray_key_offsets *keys

    def __cinit__(self, secret):
        cdef _View view = _View(secret)
        if view.size != DRAY_SECRET_SIZE:
            raise ValueError(f"a secret has {DRAY_SECRET_SIZE} bytes, not {view.size}")
        self.keys = dray_key_offsets_new(view.data)
        if self.keys == NULL:
            raise MemoryError

    def __dealloc__(self):
        dray_key_offsets_free(self.keys)

    def __len__(self):
        return dray_key_offsets_count(self.keys)

    def add(self, keys, offsets, int64_t first, int64_t count):
        """Take the keys of the rows `first` to `first + count` of a column, and the offset of each: as many
        64-bit numbers. Rows without a key are passed over."""
        cdef _View bounds = _View(keys.offsets), data = _View(keys.data), numbers = _View(offsets), validity
        cdef dray_bytes_column column
        cdef const char *wrong

        if first < 0 or count < 0 or bounds.size // 4 <= first + count or numbers.size // 8 < count:
            raise ValueError(f"the columns have no rows {first} to {first + count}")
        column.offsets = <int32_t *>bounds.data
        column.data = data.data
        column.size = data.size
        column.validity = NULL
        if keys.validity is not None:
            validity = _View(keys.validity)
            if validity.size < (first + count + 7) // 8:
                raise ValueError("the validity of the keys is too short for their rows")
            column.validity = validity.data
        with nogil:
            wrong = dray_key_offsets_add(self.keys, &column, <int64_t *>numbers.data, first, count)
        if wrong != NULL:
            raise ValueError(wrong.decode())

    def offsets(self):
        """The offsets, 64-bit numbers in no order of their own."""
        into = uninitialised(8 * dray_key_offsets_count(self.keys))
        dray_key_offsets_copy(self.keys, <int64_t *>_start_of(into))
        return into
