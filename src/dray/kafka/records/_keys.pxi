# Part of _core.pyx: stored batches into columns, and what compaction by key asks of them.

cdef list _open_stored(batches, base_offsets, dray_extent *extent, int64_t max_decompressed_bytes):
    """As `_open_all`, of batches that lie apart, and whose offsets the index knows."""
    cdef _View view
    cdef _Section section
    cdef list sections = []
    cdef dray_summary summary
    cdef int64_t base_offset

    memset(extent, 0, sizeof(extent[0]))
    for batch, base_offset in zip(batches, base_offsets, strict=True):
        view = _View(batch)
        section = _open(batch, view, 0, INT32_MAX, max_decompressed_bytes)
        if section.header.size != view.size:
            raise RecordError(RecordFault.CORRUPT, "it is not as long as it says")
        section.header.base_offset = base_offset
        _walk(section, &summary, extent)
        sections.append(section)
        if section.view is not view:
            max_decompressed_bytes -= section.size
    _check_fits(extent)
    return sections


def decode_stored(batches, base_offsets, *, int64_t max_decompressed_bytes=INT32_MAX, kept=None):
    """`decode` for batches as they are stored, one buffer each, with the offsets that the index has for them.
    `kept`: of the records, which are checked all the same, only these."""
    cdef dray_extent extent
    cdef list sections = _open_stored(batches, base_offsets, &extent, max_decompressed_bytes)
    if kept is not None:
        _pick(sections, kept, &extent)
    return _columns_of(sections, &extent)


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


def decode_keys(batches, base_offsets, *, int64_t max_decompressed_bytes=INT32_MAX):
    """The number of records of stored batches, their offsets, and their keys as a column. Every record is
    checked as `decode_stored` does."""
    cdef _Section section
    cdef dray_extent extent, filled
    cdef dray_columns into
    cdef int answer
    cdef list sections = _open_stored(batches, base_offsets, &extent, max_decompressed_bytes)

    memset(&filled, 0, sizeof(filled))
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
