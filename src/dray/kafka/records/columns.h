/* Records as columns in Arrow's layout, out of batches and back into them. */
#ifndef DRAY_COLUMNS_H
#define DRAY_COLUMNS_H

#include "batch.h"

/* Values of varying length: value n is data[offsets[n]] to data[offsets[n + 1]], and null where bit n of
 * `validity` is clear. Without `validity` nothing is null. */
typedef struct {
    int32_t *offsets;
    uint8_t *data;
    uint8_t *validity;
    int64_t size; /* of data */
} dray_bytes_column;

/* Row n has the headers headers[n] to headers[n + 1]. What belongs to the batch is repeated in its rows. */
typedef struct {
    int64_t *offsets;
    int64_t *timestamps;
    int64_t *producer_ids;
    int32_t *producer_epochs;
    int32_t *base_sequences;
    int32_t *attributes; /* the codec bits clear */
    dray_bytes_column keys;
    dray_bytes_column values;
    int32_t *headers;
    dray_bytes_column header_keys; /* never null */
    dray_bytes_column header_values;
    int64_t row_count;
    int64_t header_count;
    int sparse; /* batches of them may have holes, and then have no producer */
} dray_columns;

/* Appends the records in `data`, which dray_walk found good, at `filled`, and moves that on. -1 if they do
 * not fit: then the bytes were changed since the walk. */
int dray_fill(const uint8_t *data, int64_t size, const dray_header *header, dray_columns *columns,
              dray_extent *filled);

/* The same for the `count` records that begin at `places`. */
int dray_fill_picked(const uint8_t *data, int64_t size, const dray_header *header, const int64_t *places,
                     int64_t count, dray_columns *columns, dray_extent *filled);

/* The same for offsets and keys alone: `columns` needs room for nothing else. */
int dray_fill_keys(const uint8_t *data, int64_t size, const dray_header *header, dray_columns *columns,
                   dray_extent *filled);

typedef struct {
    int64_t row_count;
    int64_t section_size; /* of the records, uncompressed */
    int64_t last_offset_delta;
    int64_t max_timestamp;
} dray_plan;

/* How many rows from `start` on make one batch: they must follow each other (in sparse columns with holes
 * between them), agree in what the header says, and take no more than `target` bytes together (the first one may). Answers what is wrong, or NULL. */
const char *dray_plan_batch(const dray_columns *columns, int64_t start, int64_t stop, int64_t target,
                            dray_plan *plan);

/* Writes the records of a planned batch to `section`. -1 if they do not fit it exactly. */
int dray_write_section(const dray_columns *columns, int64_t start, const dray_plan *plan, uint8_t *section);

/* Writes the 61 bytes before a section of `section_size` bytes, compressed or not, without the checksum. */
void dray_write_header(const dray_columns *columns, int64_t start, const dray_plan *plan,
                       int64_t section_size, int codec, int32_t base_sequence, int32_t leader_epoch,
                       uint8_t *header);

#endif
