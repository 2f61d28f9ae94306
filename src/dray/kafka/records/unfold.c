#include "unfold.h"

#include <string.h>

#include "batch.h"
#include "wire.h"

enum { GZIP = 1, SNAPPY = 2, LZ4 = 3, ZSTD = 4 };
enum { GZIP_LEAST = 18, XERIAL_HEADER = 16, SNAPPY_MOST = 32, LZ4_HEADER = 7, ZSTD_BLOCK = 128 * 1024 };

static const int64_t MUCH = INT64_MAX / 4; /* no sum of two such overflows */
static const uint8_t XERIAL[8] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};

static int64_t least(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

/* Sums stop at MUCH: a frame may name 2^64 bytes, and there may be many of them. */
static int64_t plus(int64_t sum, uint64_t more)
{
    return more >= (uint64_t)MUCH ? MUCH : least(MUCH, sum + (int64_t)more);
}

static uint64_t little(const uint8_t *data, int bytes)
{
    uint64_t value = 0;
    memcpy(&value, data, (size_t)bytes);
    return value;
}

/* The length of the last member: of all of them, where there is one as from every client. */
static int64_t gzip(const uint8_t *data, int64_t size)
{
    return size < GZIP_LEAST ? 0 : (int64_t)little(data + size - 4, 4);
}

static int64_t raw_snappy(const uint8_t *data, int64_t size)
{
    uint64_t value = 0;
    for (int place = 0; place < 5 && place < size; place++) {
        value |= (uint64_t)(data[place] & 0x7f) << (7 * place);
        if (data[place] < 0x80)
            return least((int64_t)value, SNAPPY_MOST * size);
    }
    return 0;
}

static int64_t snappy(const uint8_t *data, int64_t size)
{
    int64_t sum = 0;

    if (size < (int64_t)sizeof XERIAL || memcmp(data, XERIAL, sizeof XERIAL) != 0)
        return raw_snappy(data, size);
    for (int64_t at = XERIAL_HEADER; size - at >= 4;) {
        int64_t length = dray_get32(data + at);
        at += 4;
        if (length <= 0 || length > size - at)
            break;
        sum = plus(sum, (uint64_t)raw_snappy(data + at, length));
        at += length;
    }
    return sum;
}

/* A stored block is as long as it says. Another one grows to the block size of the frame at most, and no
   byte of it stands for more than 255. */
static int64_t lz4(const uint8_t *data, int64_t size)
{
    if (size < LZ4_HEADER)
        return 0;
    int has_size = data[4] >> 3 & 1;
    int64_t block_checksum = data[4] & 0x10 ? 4 : 0;
    int64_t block_most = (int64_t)1 << (8 + 2 * (data[5] >> 4 & 7));
    int64_t at = LZ4_HEADER + 8 * has_size;
    int64_t sum = 0;

    while (size - at >= 4) {
        uint64_t block = little(data + at, 4);
        int64_t length = (int64_t)(block & 0x7fffffff);
        at += 4;
        if (block == 0 || length > size - at)
            break;
        sum = plus(sum, (uint64_t)(block >> 31 ? length : least(block_most, 255 * length)));
        at += length + block_checksum;
    }
    if (has_size && size >= LZ4_HEADER + 8)
        sum = least(sum, plus(0, little(data + 6, 8)));
    return sum;
}

/* Frames from streams do not say how long they are; their blocks do, but for the compressed ones, which grow
   to the window or 128 KiB at most. */
static int64_t zstd(const uint8_t *data, int64_t size)
{
    int64_t at = 0, total = 0;

    while (size - at >= 6) {
        uint64_t magic = little(data + at, 4);
        if ((magic & 0xfffffff0) == 0x184d2a50) { /* to be skipped */
            if (size - at < 8)
                break;
            at = plus(at + 8, little(data + at + 4, 4));
            continue;
        }
        if (magic != 0xfd2fb528)
            break;
        uint8_t descriptor = data[at + 4];
        int single = descriptor >> 5 & 1;
        int id_bytes = (1 << (descriptor & 3)) >> 1;
        int size_bytes = descriptor >> 6 ? 1 << (descriptor >> 6) : single;
        int64_t window = MUCH, named = MUCH, sum = 0;
        int last = 0;
        if (!single) {
            int log = 10 + (data[at + 5] >> 3);
            window = ((int64_t)1 << log) + ((int64_t)1 << log) / 8 * (data[at + 5] & 7);
        }
        at += 5 + !single + id_bytes;
        if (at + size_bytes > size)
            break;
        if (size_bytes)
            named = plus(size_bytes == 2 ? 256 : 0, little(data + at, size_bytes));
        at += size_bytes;
        int64_t block_most = least(single ? named : window, ZSTD_BLOCK);
        while (!last && size - at >= 3) {
            uint64_t block = little(data + at, 3);
            int64_t length = (int64_t)(block >> 3);
            int type = block >> 1 & 3;
            last = block & 1;
            at += 3;
            if (type == 3)
                return total;
            sum += type == 2 ? block_most : length;
            at += type == 1 ? 1 : length;
        }
        total = plus(total, (uint64_t)least(sum, named));
        at += descriptor & 4;
    }
    return total;
}

int64_t dray_unfolds_to(const uint8_t *data, int64_t available)
{
    int64_t sum = 0;

    while (available >= DRAY_HEADER_SIZE) {
        int64_t size = (int64_t)dray_get32(data + DRAY_AT_LENGTH) + DRAY_PREFIX_SIZE;
        if (size < DRAY_HEADER_SIZE || size > available)
            break;
        const uint8_t *section = data + DRAY_HEADER_SIZE;
        int64_t length = size - DRAY_HEADER_SIZE, named = 0;
        int codec = dray_get16(data + DRAY_AT_ATTRIBUTES) & DRAY_CODEC_BITS;
        if (codec == GZIP)
            named = gzip(section, length);
        else if (codec == SNAPPY)
            named = snappy(section, length);
        else if (codec == LZ4)
            named = lz4(section, length);
        else if (codec == ZSTD)
            named = zstd(section, length);
        if (codec)
            sum = plus(sum, (uint64_t)(named > 0 ? named : 1));
        data += size;
        available -= size;
    }
    return sum;
}
