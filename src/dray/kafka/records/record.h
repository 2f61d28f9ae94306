/* One record inside a decompressed batch. Inline, since it is the innermost loop of everything here. */
#ifndef DRAY_RECORD_H
#define DRAY_RECORD_H

#include "batch.h"
#include "wire.h"

/* Points into the bytes it was read from. A length of -1 is null. */
typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    const uint8_t *key;
    int32_t key_length;
    const uint8_t *value;
    int32_t value_length;
    const uint8_t *headers;
    const uint8_t *end;
    int32_t header_count;
} dray_record;

typedef struct {
    const uint8_t *key;
    int32_t key_length;
    const uint8_t *value;
    int32_t value_length;
} dray_record_header;

/* Reads length and bytes; -1 is null. Answers NULL, or what is wrong. */
static inline const char *dray_read_bytes(const uint8_t **cursor, const uint8_t *end, const uint8_t **bytes,
                                          int32_t *length)
{
    if (!dray_read_varint(cursor, end, length))
        return "a length is cut off or too long";
    if (*length < -1)
        return "a length is below -1";
    *bytes = *cursor;
    if (*length > 0) {
        if (*length > end - *cursor)
            return "a key or value reaches past the end of its record";
        *cursor += *length;
    }
    return 0;
}

/* Checks the headers at `data`, which must end at `end`, and adds what they take. */
const char *dray_check_headers(const uint8_t *data, const uint8_t *end, int32_t count, dray_extent *extent);

static inline const char *dray_read_record_header(const uint8_t **cursor, const uint8_t *end,
                                                  dray_record_header *header)
{
    const char *wrong = dray_read_bytes(cursor, end, &header->key, &header->key_length);
    if (wrong)
        return wrong;
    if (header->key_length < 0)
        return "a header has no key";
    return dray_read_bytes(cursor, end, &header->value, &header->value_length);
}

/* Reads and checks the record at `*cursor`, and moves past it. Answers NULL, or what is wrong. */
static inline const char *dray_read_record(const uint8_t **cursor, const uint8_t *end, dray_record *record,
                                           dray_extent *extent)
{
    const uint8_t *at = *cursor;
    const char *wrong;
    int32_t length;

    if (!dray_read_varint(&at, end, &length))
        return "its length is cut off or too long";
    if (length < 0 || length > end - at)
        return "its length does not fit the batch";
    record->end = end = at + length;
    if (at == end)
        return "it is empty";
    at++; /* attributes: Kafka defines none, and ignores what is there */
    if (!dray_read_varlong(&at, end, &record->timestamp_delta))
        return "its timestamp delta is cut off or too long";
    if (!dray_read_varint(&at, end, &record->offset_delta))
        return "its offset delta is cut off or too long";
    if ((wrong = dray_read_bytes(&at, end, &record->key, &record->key_length)))
        return wrong;
    if ((wrong = dray_read_bytes(&at, end, &record->value, &record->value_length)))
        return wrong;
    if (!dray_read_varint(&at, end, &record->header_count))
        return "its header count is cut off or too long";
    if (record->header_count < 0)
        return "its header count is negative";
    record->headers = at;
    if (record->header_count == 0) {
        if (at != end)
            return "bytes are left over at its end";
    } else if ((wrong = dray_check_headers(at, end, record->header_count, extent)))
        return wrong;
    extent->records++;
    extent->key_bytes += record->key_length > 0 ? record->key_length : 0;
    extent->value_bytes += record->value_length > 0 ? record->value_length : 0;
    *cursor = end;
    return 0;
}

#endif
