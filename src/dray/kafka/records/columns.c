#include "columns.h"

#include "record.h"

/* Appends one value to a column. `length` -1 is null. */
static inline int append_bytes(dray_bytes_column *column, int64_t row, int64_t *used, const uint8_t *bytes,
                               int32_t length)
{
    if (length >= 0) {
        if (length > column->size - *used)
            return 0;
        memcpy(column->data + *used, bytes, (size_t)length);
        *used += length;
        column->validity[row >> 3] |= (uint8_t)(1 << (row & 7));
    }
    column->offsets[row + 1] = (int32_t)*used;
    return 1;
}

static int append_headers(const dray_record *record, dray_columns *columns, dray_extent *filled)
{
    const uint8_t *cursor = record->headers;

    if (record->header_count > columns->header_count - filled->headers)
        return 0;
    for (int32_t index = 0; index < record->header_count; index++) {
        dray_record_header header;
        int64_t row = filled->headers++;
        if (dray_read_record_header(&cursor, record->end, &header))
            return 0;
        if (!append_bytes(&columns->header_keys, row, &filled->header_key_bytes, header.key, header.key_length))
            return 0;
        if (!append_bytes(&columns->header_values, row, &filled->header_value_bytes, header.value,
                          header.value_length))
            return 0;
    }
    return 1;
}

/* Appends one record as a row of all columns. */
static inline int append_record(const dray_record *record, const dray_header *header, dray_columns *columns,
                                dray_extent *filled)
{
    int64_t row = filled->records++;

    columns->offsets[row] = (int64_t)((uint64_t)header->base_offset + (uint64_t)record->offset_delta);
    columns->timestamps[row] =
        header->attributes & DRAY_LOG_APPEND_TIME
            ? header->max_timestamp
            : (int64_t)((uint64_t)header->base_timestamp + (uint64_t)record->timestamp_delta);
    columns->producer_ids[row] = header->producer_id;
    columns->producer_epochs[row] = header->producer_epoch;
    columns->base_sequences[row] = header->base_sequence;
    columns->attributes[row] = header->attributes & ~DRAY_CODEC_BITS;
    if (!append_bytes(&columns->keys, row, &filled->key_bytes, record->key, record->key_length))
        return 0;
    if (!append_bytes(&columns->values, row, &filled->value_bytes, record->value, record->value_length))
        return 0;
    if (record->header_count > 0 && !append_headers(record, columns, filled))
        return 0;
    columns->headers[row + 1] = (int32_t)filled->headers;
    return 1;
}

int dray_fill(const uint8_t *data, int64_t size, const dray_header *header, dray_columns *columns,
              dray_extent *filled)
{
    const uint8_t *cursor = data, *end = data + size;

    if (header->record_count > columns->row_count - filled->records)
        return -1;
    for (int32_t index = 0; index < header->record_count; index++) {
        dray_record record;
        dray_extent unused = {0};
        if (dray_read_record(&cursor, end, &record, &unused) ||
            !append_record(&record, header, columns, filled))
            return -1;
    }
    return 0;
}

int dray_fill_picked(const uint8_t *data, int64_t size, const dray_header *header, const int64_t *places,
                     int64_t count, dray_columns *columns, dray_extent *filled)
{
    if (count > columns->row_count - filled->records)
        return -1;
    for (int64_t number = 0; number < count; number++) {
        const uint8_t *cursor = data + places[number];
        dray_record record;
        dray_extent unused = {0};
        if (dray_read_record(&cursor, data + size, &record, &unused) ||
            !append_record(&record, header, columns, filled))
            return -1;
    }
    return 0;
}

int dray_fill_keys(const uint8_t *data, int64_t size, const dray_header *header, dray_columns *columns,
                   dray_extent *filled)
{
    const uint8_t *cursor = data, *end = data + size;

    if (header->record_count > columns->row_count - filled->records)
        return -1;
    for (int32_t index = 0; index < header->record_count; index++) {
        int64_t row = filled->records++, time;
        int32_t length, delta;
        const uint8_t *key;
        if (!dray_read_varint(&cursor, end, &length) || length < 1 || length > end - cursor)
            return -1;
        const uint8_t *at = cursor + 1; /* behind the attributes */
        cursor += length;
        if (!dray_read_varlong(&at, cursor, &time) || !dray_read_varint(&at, cursor, &delta) ||
            dray_read_bytes(&at, cursor, &key, &length))
            return -1;
        columns->offsets[row] = (int64_t)((uint64_t)header->base_offset + (uint64_t)delta);
        if (!append_bytes(&columns->keys, row, &filled->key_bytes, key, length))
            return -1;
    }
    return 0;
}

/* A value of a column, checked against its bounds. */
typedef struct {
    const uint8_t *bytes;
    int64_t length; /* -1: null */
} cell;

static inline int get_cell(const dray_bytes_column *column, int64_t row, cell *cell)
{
    int64_t start = column->offsets[row], end = column->offsets[row + 1];

    if (start < 0 || end < start || end > column->size)
        return 0;
    cell->bytes = column->data + start;
    cell->length = end - start;
    if (column->validity && !(column->validity[row >> 3] >> (row & 7) & 1))
        cell->length = -1;
    return 1;
}

static inline int64_t cell_size(const cell *cell)
{
    return dray_varlong_size(cell->length) + (cell->length > 0 ? cell->length : 0);
}

typedef struct {
    int64_t timestamp_delta;
    int64_t offset_delta;
    cell key;
    cell value;
    int64_t first_header;
    int64_t last_header; /* the first that is not its own */
    int64_t body_size;
} row_view;

/* Takes row `row` of a batch that starts with row `start`. Its timestamp delta must be known to fit. */
static inline int view_row(const dray_columns *columns, int64_t start, int64_t row, row_view *view)
{
    view->timestamp_delta =
        (int64_t)((uint64_t)columns->timestamps[row] - (uint64_t)columns->timestamps[start]);
    view->offset_delta = columns->offsets[row] - columns->offsets[start];
    view->first_header = columns->headers[row];
    view->last_header = columns->headers[row + 1];
    if (!get_cell(&columns->keys, row, &view->key) || !get_cell(&columns->values, row, &view->value))
        return 0;
    if (view->first_header < 0 || view->last_header < view->first_header ||
        view->last_header > columns->header_count)
        return 0;
    view->body_size = 1 + dray_varlong_size(view->timestamp_delta) + dray_varlong_size(view->offset_delta) +
                      cell_size(&view->key) + cell_size(&view->value) +
                      dray_varlong_size(view->last_header - view->first_header);
    for (int64_t header = view->first_header; header < view->last_header; header++) {
        cell key, value;
        if (!get_cell(&columns->header_keys, header, &key) || key.length < 0 ||
            !get_cell(&columns->header_values, header, &value))
            return 0;
        view->body_size += cell_size(&key) + cell_size(&value);
    }
    return 1;
}

static int can_join(const dray_columns *columns, int64_t start, int64_t row)
{
    int64_t delta;
    uint64_t offset_delta = (uint64_t)columns->offsets[row] - (uint64_t)columns->offsets[start];
    int follows = columns->sparse
                      ? columns->offsets[row] > columns->offsets[row - 1] && offset_delta < INT32_MAX
                      : offset_delta == (uint64_t)(row - start) &&
                            columns->producer_ids[row] == columns->producer_ids[start] &&
                            columns->producer_epochs[row] == columns->producer_epochs[start] &&
                            columns->base_sequences[row] == columns->base_sequences[start];

    return follows && columns->attributes[row] == columns->attributes[start] &&
           !((columns->attributes[row] & DRAY_LOG_APPEND_TIME) &&
             columns->timestamps[row] != columns->timestamps[start]) &&
           !__builtin_sub_overflow(columns->timestamps[row], columns->timestamps[start], &delta);
}

const char *dray_plan_batch(const dray_columns *columns, int64_t start, int64_t stop, int64_t target,
                            dray_plan *plan)
{
    plan->row_count = plan->section_size = plan->last_offset_delta = 0;
    plan->max_timestamp = columns->timestamps[start];
    for (int64_t row = start; row < stop; row++) {
        row_view view;
        if (row > start && !can_join(columns, start, row))
            break;
        if (!view_row(columns, start, row, &view))
            return "the columns do not fit together";
        int64_t size = dray_varlong_size(view.body_size) + view.body_size;
        if (size > INT32_MAX - DRAY_HEADER_SIZE)
            return "a record is too large for a batch";
        if (row > start && plan->section_size + size > target)
            break;
        plan->section_size += size;
        plan->row_count++;
        plan->last_offset_delta = view.offset_delta;
        if (columns->timestamps[row] > plan->max_timestamp)
            plan->max_timestamp = columns->timestamps[row];
    }
    return 0;
}

static inline uint8_t *write_cell(uint8_t *at, const uint8_t *end, const cell *cell)
{
    if (cell_size(cell) > end - at)
        return 0;
    at = dray_write_varlong(at, cell->length);
    if (cell->length > 0) {
        memcpy(at, cell->bytes, (size_t)cell->length);
        at += cell->length;
    }
    return at;
}

int dray_write_section(const dray_columns *columns, int64_t start, const dray_plan *plan, uint8_t *section)
{
    uint8_t *at = section, *end = section + plan->section_size;

    for (int64_t row = start; row < start + plan->row_count; row++) {
        row_view view;
        if (!view_row(columns, start, row, &view) ||
            view.body_size + dray_varlong_size(view.body_size) > end - at)
            return -1;
        at = dray_write_varlong(at, view.body_size);
        *at++ = 0; /* attributes, of which Kafka defines none */
        at = dray_write_varlong(at, view.timestamp_delta);
        at = dray_write_varlong(at, view.offset_delta);
        at = write_cell(at, end, &view.key);
        at = write_cell(at, end, &view.value);
        at = dray_write_varlong(at, view.last_header - view.first_header);
        for (int64_t header = view.first_header; header < view.last_header; header++) {
            cell key, value;
            if (!get_cell(&columns->header_keys, header, &key) ||
                !get_cell(&columns->header_values, header, &value))
                return -1;
            if (!(at = write_cell(at, end, &key)) || !(at = write_cell(at, end, &value)))
                return -1;
        }
    }
    return at == end ? 0 : -1;
}

void dray_write_header(const dray_columns *columns, int64_t start, const dray_plan *plan,
                       int64_t section_size, int codec, int32_t base_sequence, int32_t leader_epoch,
                       uint8_t *header)
{
    int64_t size = section_size + DRAY_HEADER_SIZE - DRAY_PREFIX_SIZE;

    dray_put64(header + DRAY_AT_BASE_OFFSET, columns->offsets[start]);
    dray_put32(header + DRAY_AT_LENGTH, (int32_t)size);
    dray_put32(header + DRAY_AT_LEADER_EPOCH, leader_epoch);
    header[DRAY_AT_MAGIC] = 2;
    dray_put32(header + DRAY_AT_CRC, 0);
    dray_put16(header + DRAY_AT_ATTRIBUTES,
               (int16_t)((columns->attributes[start] & ~DRAY_CODEC_BITS) | codec));
    dray_put32(header + DRAY_AT_LAST_OFFSET_DELTA, (int32_t)plan->last_offset_delta);
    dray_put64(header + DRAY_AT_BASE_TIMESTAMP, columns->timestamps[start]);
    dray_put64(header + DRAY_AT_MAX_TIMESTAMP, plan->max_timestamp);
    dray_put64(header + DRAY_AT_PRODUCER_ID, columns->sparse ? -1 : columns->producer_ids[start]);
    dray_put16(header + DRAY_AT_PRODUCER_EPOCH,
               (int16_t)(columns->sparse ? -1 : columns->producer_epochs[start]));
    dray_put32(header + DRAY_AT_BASE_SEQUENCE, columns->sparse ? -1 : base_sequence);
    dray_put32(header + DRAY_AT_RECORD_COUNT, (int32_t)plan->row_count);
}
