/* Kafka record batches (magic 2): the header, and the walk over the records.
 *
 * Nothing read from a batch is believed before it was checked: every length is held against the bytes
 * that are there, and every number is read once. The functions take no lock, allocate nothing and know
 * nothing of Python. Those that answer int answer 0 when all is well, and -1 with `problem` filled in. */
#ifndef DRAY_BATCH_H
#define DRAY_BATCH_H

#include <stdint.h>

/* The prefix is base offset and length: what the length does not count. */
enum { DRAY_PREFIX_SIZE = 12, DRAY_HEADER_SIZE = 61 };

enum {
    DRAY_AT_BASE_OFFSET = 0,
    DRAY_AT_LENGTH = 8,
    DRAY_AT_LEADER_EPOCH = 12,
    DRAY_AT_MAGIC = 16,
    DRAY_AT_CRC = 17,
    DRAY_AT_ATTRIBUTES = 21,
    DRAY_AT_LAST_OFFSET_DELTA = 23,
    DRAY_AT_BASE_TIMESTAMP = 27,
    DRAY_AT_MAX_TIMESTAMP = 35,
    DRAY_AT_PRODUCER_ID = 43,
    DRAY_AT_PRODUCER_EPOCH = 51,
    DRAY_AT_BASE_SEQUENCE = 53,
    DRAY_AT_RECORD_COUNT = 57,
};

enum {
    DRAY_CODEC_BITS = 0x07,
    DRAY_LOG_APPEND_TIME = 0x08,
    DRAY_TRANSACTIONAL = 0x10,
    DRAY_CONTROL = 0x20,
    DRAY_DELETE_HORIZON = 0x40,
};

/* The numbers are those of RecordFault in faults.py. */
typedef enum {
    DRAY_CORRUPT = 1,
    DRAY_INVALID_RECORD = 2,
    DRAY_UNSUPPORTED_FORMAT = 3,
    DRAY_UNSUPPORTED_COMPRESSION = 4,
    DRAY_TOO_LARGE = 5,
} dray_fault;

typedef struct {
    int fault; /* a dray_fault */
    const char *what;
    int64_t record; /* which one, counted from 0; -1 for the batch as a whole */
} dray_problem;

typedef struct {
    int64_t base_offset;
    int64_t size; /* the whole batch, the prefix included */
    int32_t attributes;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int32_t producer_epoch;
    int32_t base_sequence;
    int32_t record_count;
    int32_t last_offset_delta;
} dray_header;

/* What the records of a batch say together. In a LogAppendTime batch every timestamp is the header's. */
typedef struct {
    int64_t min_timestamp;
    int64_t max_timestamp;
    int32_t max_timestamp_delta; /* offset delta of the first record that has the maximum */
} dray_summary;

/* How much room the records of some batches take as columns. */
typedef struct {
    int64_t records;
    int64_t key_bytes;
    int64_t value_bytes;
    int64_t headers;
    int64_t header_key_bytes;
    int64_t header_value_bytes;
} dray_extent;

typedef struct {
    int64_t offset_delta; /* -1: no such record */
    int64_t timestamp;
} dray_found;

/* Checks all that the header can tell, and the checksum over the whole batch. `sparse`: records may be
 * missing, all of them too, as in a batch of a log that was compacted by key. */
int dray_read_header(const uint8_t *data, int64_t available, int64_t max_batch_bytes, int sparse,
                     dray_header *header, dray_problem *problem);

/* Checks every record in `data` (decompressed) and sums them up; adds to `extent` what they take. Without a
 * hole the counts of the header leave one offset delta for each record. */
int dray_walk(const uint8_t *data, int64_t size, const dray_header *header, dray_summary *summary,
              dray_extent *extent, dray_problem *problem);

/* The first record whose timestamp is at least `timestamp`. */
int dray_find_timestamp(const uint8_t *data, int64_t size, const dray_header *header, int64_t timestamp,
                        dray_found *found, dray_problem *problem);

/* The size of the batch at `data`, if it is whole and its header is right, which may have holes, and begins at
 * `from_offset` or above; and if its checksum holds, where that is asked for. Else 0. */
int64_t dray_sound_size(const uint8_t *data, int64_t available, int64_t from_offset, int checksum);

/* Is the batch of `size` bytes at `data` what was once found good? Its records are not walked again. */
int dray_is_sound(const uint8_t *data, int64_t size);

/* Computes the checksum of the whole batch at `data` anew. */
void dray_seal(uint8_t *data, int64_t size);

#endif
