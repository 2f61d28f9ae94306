# The C beneath: crc32c.h, wire.h, batch.h, unfold.h, columns.h and keys.h.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


cdef extern from "crc32c.h" nogil:
    void dray_crc32c_prepare()
    uint32_t dray_crc32c(uint32_t crc, const uint8_t *data, size_t size)
    uint32_t dray_crc32c_software(uint32_t crc, const uint8_t *data, size_t size)
    bint dray_crc32c_is_hardware()


cdef extern from "wire.h" nogil:
    int dray_get16(const uint8_t *data)
    void dray_put16(uint8_t *data, int value)
    int32_t dray_get32(const uint8_t *data)
    int64_t dray_get64(const uint8_t *data)
    void dray_put32(uint8_t *data, int32_t value)
    void dray_put64(uint8_t *data, int64_t value)


cdef extern from "batch.h" nogil:
    enum:
        DRAY_PREFIX_SIZE
        DRAY_HEADER_SIZE
        DRAY_AT_BASE_OFFSET
        DRAY_AT_LENGTH
        DRAY_AT_LEADER_EPOCH
        DRAY_AT_MAGIC
        DRAY_AT_CRC
        DRAY_AT_ATTRIBUTES
        DRAY_AT_LAST_OFFSET_DELTA
        DRAY_AT_BASE_TIMESTAMP
        DRAY_AT_MAX_TIMESTAMP
        DRAY_AT_PRODUCER_ID
        DRAY_AT_PRODUCER_EPOCH
        DRAY_AT_BASE_SEQUENCE
        DRAY_AT_RECORD_COUNT
        DRAY_CODEC_BITS
        DRAY_LOG_APPEND_TIME

    ctypedef struct dray_problem:
        int fault
        const char *what
        int64_t record

    ctypedef struct dray_header:
        int64_t base_offset
        int64_t size
        int32_t attributes
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t producer_id
        int32_t producer_epoch
        int32_t base_sequence
        int32_t record_count
        int32_t last_offset_delta

    ctypedef struct dray_summary:
        int64_t min_timestamp
        int64_t max_timestamp
        int32_t max_timestamp_delta

    ctypedef struct dray_extent:
        int64_t records
        int64_t key_bytes
        int64_t value_bytes
        int64_t headers
        int64_t header_key_bytes
        int64_t header_value_bytes

    ctypedef struct dray_found:
        int64_t offset_delta
        int64_t timestamp

    int dray_read_header(const uint8_t *data, int64_t available, int64_t max_batch_bytes, int sparse,
                         dray_header *header, dray_problem *problem)
    int dray_walk(const uint8_t *data, int64_t size, const dray_header *header, dray_summary *summary,
                  dray_extent *extent, dray_problem *problem)
    int dray_find_timestamp(const uint8_t *data, int64_t size, const dray_header *header, int64_t timestamp,
                            dray_found *found, dray_problem *problem)
    int64_t dray_sound_size(const uint8_t *data, int64_t available, int64_t from_offset, int checksum)
    bint dray_is_sound(const uint8_t *data, int64_t size)
    void dray_seal(uint8_t *data, int64_t size)


cdef extern from "unfold.h" nogil:
    int64_t dray_unfolds_to(const uint8_t *data, int64_t available)


cdef extern from "columns.h" nogil:
    ctypedef struct dray_bytes_column:
        int32_t *offsets
        uint8_t *data
        uint8_t *validity
        int64_t size

    ctypedef struct dray_columns:
        int64_t *offsets
        int64_t *timestamps
        int64_t *producer_ids
        int32_t *producer_epochs
        int32_t *base_sequences
        int32_t *attributes
        dray_bytes_column keys
        dray_bytes_column values
        int32_t *headers
        dray_bytes_column header_keys
        dray_bytes_column header_values
        int64_t row_count
        int64_t header_count
        int sparse

    ctypedef struct dray_plan:
        int64_t row_count
        int64_t section_size
        int64_t last_offset_delta
        int64_t max_timestamp

    int dray_fill(const uint8_t *data, int64_t size, const dray_header *header, dray_columns *columns,
                  dray_extent *filled)
    int dray_fill_picked(const uint8_t *data, int64_t size, const dray_header *header, const int64_t *places,
                         int64_t count, dray_columns *columns, dray_extent *filled)
    int dray_fill_keys(const uint8_t *data, int64_t size, const dray_header *header, dray_columns *columns,
                       dray_extent *filled)
    const char *dray_plan_batch(const dray_columns *columns, int64_t start, int64_t stop, int64_t target,
                                dray_plan *plan)
    int dray_write_section(const dray_columns *columns, int64_t start, const dray_plan *plan, uint8_t *section)
    void dray_write_header(const dray_columns *columns, int64_t start, const dray_plan *plan,
                           int64_t section_size, int codec, int32_t base_sequence, int32_t leader_epoch,
                           uint8_t *header)


cdef extern from "keys.h" nogil:
    enum:
        DRAY_SECRET_SIZE

    ctypedef struct dray_key_offsets:
        pass

    ctypedef struct dray_kept:
        const int64_t *offsets
        int64_t count
        int64_t tombstones_below
        int64_t last
        int keyless

    dray_key_offsets *dray_key_offsets_new(const uint8_t *secret)
    void dray_key_offsets_free(dray_key_offsets *keys)
    const char *dray_key_offsets_add(dray_key_offsets *keys, const dray_bytes_column *column,
                                     const int64_t *offsets, int64_t first, int64_t count)
    int64_t dray_key_offsets_count(const dray_key_offsets *keys)
    void dray_key_offsets_copy(const dray_key_offsets *keys, int64_t *into)
    int64_t dray_pick(const uint8_t *data, int64_t size, const dray_header *header, const dray_kept *kept,
                      int64_t *places, dray_extent *extent)
