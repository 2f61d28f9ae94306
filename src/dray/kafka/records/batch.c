#include "batch.h"

#include "crc32c.h"
#include "record.h"

enum { OLD_MAGIC = 1, MAGIC = 2, LAST_CODEC = 4 };

static int refuse(dray_problem *problem, dray_fault fault, int64_t record, const char *what)
{
    problem->fault = fault;
    problem->record = record;
    problem->what = what;
    return -1;
}

int dray_read_header(const uint8_t *data, int64_t available, int64_t max_batch_bytes, int sparse,
                     dray_header *header, dray_problem *problem)
{
    if (available <= DRAY_AT_MAGIC)
        return refuse(problem, DRAY_INVALID_RECORD, -1, "it is cut off in its header");

    uint8_t magic = data[DRAY_AT_MAGIC];
    if (magic <= OLD_MAGIC)
        return refuse(problem, DRAY_UNSUPPORTED_FORMAT, -1, "its format is that of magic 0 or 1");
    if (magic != MAGIC)
        return refuse(problem, DRAY_CORRUPT, -1, "its magic is unknown");

    header->size = (int64_t)dray_get32(data + DRAY_AT_LENGTH) + DRAY_PREFIX_SIZE;
    if (header->size < DRAY_HEADER_SIZE)
        return refuse(problem, DRAY_CORRUPT, -1, "its length is less than that of a header");
    if (header->size > available)
        return refuse(problem, DRAY_INVALID_RECORD, -1, "its length reaches past the end");
    if (header->size > max_batch_bytes)
        return refuse(problem, DRAY_TOO_LARGE, -1, "it is larger than allowed");
    if ((uint32_t)dray_get32(data + DRAY_AT_CRC) !=
        dray_crc32c(0, data + DRAY_AT_ATTRIBUTES, (size_t)(header->size - DRAY_AT_ATTRIBUTES)))
        return refuse(problem, DRAY_CORRUPT, -1, "its checksum is wrong");

    header->base_offset = dray_get64(data + DRAY_AT_BASE_OFFSET);
    header->attributes = dray_get16(data + DRAY_AT_ATTRIBUTES);
    header->base_timestamp = dray_get64(data + DRAY_AT_BASE_TIMESTAMP);
    header->max_timestamp = dray_get64(data + DRAY_AT_MAX_TIMESTAMP);
    header->producer_id = dray_get64(data + DRAY_AT_PRODUCER_ID);
    header->producer_epoch = dray_get16(data + DRAY_AT_PRODUCER_EPOCH);
    header->base_sequence = dray_get32(data + DRAY_AT_BASE_SEQUENCE);
    header->record_count = dray_get32(data + DRAY_AT_RECORD_COUNT);
    header->last_offset_delta = dray_get32(data + DRAY_AT_LAST_OFFSET_DELTA);

    if ((header->attributes & DRAY_CODEC_BITS) > LAST_CODEC)
        return refuse(problem, DRAY_UNSUPPORTED_COMPRESSION, -1, "its codec is unknown");
    if (sparse) /* of a log that was written elsewhere: it says nothing of the records themselves */
        header->attributes &= ~(DRAY_TRANSACTIONAL | DRAY_DELETE_HORIZON);
    if (header->attributes & DRAY_CONTROL)
        return refuse(problem, DRAY_INVALID_RECORD, -1, "it is a control batch");
    if (header->attributes & DRAY_TRANSACTIONAL)
        return refuse(problem, DRAY_INVALID_RECORD, -1, "it is transactional");
    if (header->attributes & DRAY_DELETE_HORIZON)
        return refuse(problem, DRAY_INVALID_RECORD, -1, "it carries a delete horizon");
    if (header->record_count < (sparse ? 0 : 1))
        return refuse(problem, DRAY_INVALID_RECORD, -1, "it counts no records");
    if (header->last_offset_delta < 0 ||
        (sparse ? header->last_offset_delta < header->record_count - 1
                : header->last_offset_delta != header->record_count - 1))
        return refuse(problem, DRAY_INVALID_RECORD, -1, "its last offset delta does not fit its count");
    /* Without a producer id the other two mean nothing: some clients leave 0 there, others -1. */
    if (header->producer_id < -1 ||
        (header->producer_id >= 0 && (header->producer_epoch < 0 || header->base_sequence < 0)))
        return refuse(problem, DRAY_INVALID_RECORD, -1, "its producer fields do not go together");
    return 0;
}

int dray_walk(const uint8_t *data, int64_t size, const dray_header *header, dray_summary *summary,
              dray_extent *extent, dray_problem *problem)
{
    const uint8_t *cursor = data, *end = data + size;
    int64_t min_delta = INT64_MAX, max_delta = INT64_MIN;
    int64_t holes = (int64_t)header->last_offset_delta - (header->record_count - 1), following = 0;
    dray_extent total = *extent; /* a local: its fields then live in registers */

    summary->max_timestamp_delta = 0;
    for (int32_t index = 0; index < header->record_count; index++) {
        dray_record record;
        const char *wrong = dray_read_record(&cursor, end, &record, &total);
        if (wrong)
            return refuse(problem, DRAY_INVALID_RECORD, index, wrong);
        if (record.offset_delta < following || record.offset_delta - index > holes)
            return refuse(problem, DRAY_INVALID_RECORD, index, "its offset delta is out of order");
        following = (int64_t)record.offset_delta + 1;
        if (record.timestamp_delta < min_delta)
            min_delta = record.timestamp_delta;
        if (record.timestamp_delta > max_delta) {
            max_delta = record.timestamp_delta;
            summary->max_timestamp_delta = record.offset_delta;
        }
    }
    if (cursor != end)
        return refuse(problem, DRAY_INVALID_RECORD, -1, "bytes are left over after its last record");
    if (header->record_count == 0)
        min_delta = max_delta = 0;
    if (__builtin_add_overflow(header->base_timestamp, min_delta, &summary->min_timestamp) ||
        __builtin_add_overflow(header->base_timestamp, max_delta, &summary->max_timestamp))
        return refuse(problem, DRAY_INVALID_RECORD, -1, "a timestamp does not fit 64 bits");
    if (header->attributes & DRAY_LOG_APPEND_TIME) {
        summary->min_timestamp = summary->max_timestamp = header->max_timestamp;
        summary->max_timestamp_delta = 0;
    }
    *extent = total;
    return 0;
}

int dray_find_timestamp(const uint8_t *data, int64_t size, const dray_header *header, int64_t timestamp,
                        dray_found *found, dray_problem *problem)
{
    const uint8_t *cursor = data, *end = data + size;
    dray_extent extent = {0};

    found->offset_delta = -1;
    for (int32_t index = 0; index < header->record_count; index++) {
        dray_record record;
        int64_t at;
        const char *wrong = dray_read_record(&cursor, end, &record, &extent);
        if (wrong)
            return refuse(problem, DRAY_INVALID_RECORD, index, wrong);
        if (header->attributes & DRAY_LOG_APPEND_TIME)
            at = header->max_timestamp;
        else if (__builtin_add_overflow(header->base_timestamp, record.timestamp_delta, &at))
            return refuse(problem, DRAY_INVALID_RECORD, index, "its timestamp does not fit 64 bits");
        if (at >= timestamp) {
            found->offset_delta = record.offset_delta;
            found->timestamp = at;
            return 0;
        }
    }
    return 0;
}

/* Headers are few and short, but their keys become text in tables: it must be well-formed UTF-8. */
static int is_utf8(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint8_t lead = *at++;
        if (lead < 0x80)
            continue;
        int more;
        uint8_t low = 0x80, high = 0xbf; /* of the second byte: no overlong form, no surrogate */
        if (lead >= 0xc2 && lead <= 0xdf)
            more = 1;
        else if (lead >= 0xe0 && lead <= 0xef) {
            more = 2;
            if (lead == 0xe0)
                low = 0xa0;
            else if (lead == 0xed)
                high = 0x9f;
        } else if (lead >= 0xf0 && lead <= 0xf4) {
            more = 3;
            if (lead == 0xf0)
                low = 0x90;
            else if (lead == 0xf4)
                high = 0x8f;
        } else
            return 0;
        if (end - at < more || *at < low || *at > high)
            return 0;
        for (at++; --more > 0; at++)
            if ((*at & 0xc0) != 0x80)
                return 0;
    }
    return 1;
}

const char *dray_check_headers(const uint8_t *data, const uint8_t *end, int32_t count, dray_extent *extent)
{
    for (int32_t index = 0; index < count; index++) {
        dray_record_header header;
        const char *wrong = dray_read_record_header(&data, end, &header);
        if (wrong)
            return wrong;
        if (!is_utf8(header.key, header.key + header.key_length))
            return "a header key is not UTF-8";
        extent->header_key_bytes += header.key_length;
        extent->header_value_bytes += header.value_length > 0 ? header.value_length : 0;
    }
    if (data != end)
        return "bytes are left over at its end";
    extent->headers += count;
    return 0;
}

int64_t dray_sound_size(const uint8_t *data, int64_t available, int64_t from_offset, int checksum)
{
    if (available < DRAY_HEADER_SIZE || data[DRAY_AT_MAGIC] != MAGIC)
        return 0;
    int64_t size = (int64_t)dray_get32(data + DRAY_AT_LENGTH) + DRAY_PREFIX_SIZE;
    int64_t base_offset = dray_get64(data + DRAY_AT_BASE_OFFSET);
    int64_t last_delta = dray_get32(data + DRAY_AT_LAST_OFFSET_DELTA);
    int64_t records = dray_get32(data + DRAY_AT_RECORD_COUNT);
    if (size < DRAY_HEADER_SIZE || size > available)
        return 0;
    if (base_offset < 0 || base_offset < from_offset || last_delta < 0)
        return 0;
    if (base_offset >= INT64_MAX - last_delta) /* there must be a next offset */
        return 0;
    if (records < 0 || records > last_delta + 1)
        return 0;
    return checksum && !dray_is_sound(data, size) ? 0 : size;
}

int dray_is_sound(const uint8_t *data, int64_t size)
{
    return dray_get32(data + DRAY_AT_LENGTH) == size - DRAY_PREFIX_SIZE && data[DRAY_AT_MAGIC] == MAGIC &&
           (uint32_t)dray_get32(data + DRAY_AT_CRC) ==
               dray_crc32c(0, data + DRAY_AT_ATTRIBUTES, (size_t)(size - DRAY_AT_ATTRIBUTES));
}

void dray_seal(uint8_t *data, int64_t size)
{
    uint32_t crc = dray_crc32c(0, data + DRAY_AT_ATTRIBUTES, (size_t)(size - DRAY_AT_ATTRIBUTES));
    dray_put32(data + DRAY_AT_CRC, (int32_t)crc);
}
