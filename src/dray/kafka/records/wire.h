/* Numbers as Kafka writes them: big-endian ones in headers, zigzag varints in records. */
#ifndef DRAY_WIRE_H
#define DRAY_WIRE_H

#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "Arrow's buffers and these swaps are little-endian");

static inline int16_t dray_get16(const uint8_t *data)
{
    uint16_t value;
    memcpy(&value, data, sizeof value);
    return (int16_t)__builtin_bswap16(value);
}

static inline int32_t dray_get32(const uint8_t *data)
{
    uint32_t value;
    memcpy(&value, data, sizeof value);
    return (int32_t)__builtin_bswap32(value);
}

static inline int64_t dray_get64(const uint8_t *data)
{
    uint64_t value;
    memcpy(&value, data, sizeof value);
    return (int64_t)__builtin_bswap64(value);
}

static inline void dray_put16(uint8_t *data, int16_t value)
{
    uint16_t swapped = __builtin_bswap16((uint16_t)value);
    memcpy(data, &swapped, sizeof swapped);
}

static inline void dray_put32(uint8_t *data, int32_t value)
{
    uint32_t swapped = __builtin_bswap32((uint32_t)value);
    memcpy(data, &swapped, sizeof swapped);
}

static inline void dray_put64(uint8_t *data, int64_t value)
{
    uint64_t swapped = __builtin_bswap64((uint64_t)value);
    memcpy(data, &swapped, sizeof swapped);
}

/* Both readers answer 1 and move the cursor, or 0 if the number is cut off or does not fit its type. */

static inline int dray_read_varlong(const uint8_t **cursor, const uint8_t *end, int64_t *number)
{
    const uint8_t *at = *cursor;
    uint64_t raw = 0;

    for (int shift = 0; shift < 70; shift += 7) {
        if (at == end)
            return 0;
        uint8_t byte = *at++;
        if (shift == 63 && byte > 1)
            return 0;
        raw |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *number = (int64_t)(raw >> 1 ^ -(raw & 1));
            *cursor = at;
            return 1;
        }
    }
    return 0;
}

static inline int dray_read_varint(const uint8_t **cursor, const uint8_t *end, int32_t *number)
{
    const uint8_t *at = *cursor;
    uint32_t raw = 0;

    for (int shift = 0; shift < 35; shift += 7) {
        if (at == end)
            return 0;
        uint8_t byte = *at++;
        if (shift == 28 && byte > 15)
            return 0;
        raw |= (uint32_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *number = (int32_t)(raw >> 1 ^ -(raw & 1));
            *cursor = at;
            return 1;
        }
    }
    return 0;
}

static inline int dray_varlong_size(int64_t number)
{
    uint64_t raw = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    return (70 - __builtin_clzll(raw | 1)) / 7;
}

static inline uint8_t *dray_write_varlong(uint8_t *at, int64_t number)
{
    uint64_t raw = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    for (; raw >= 0x80; raw >>= 7)
        *at++ = (uint8_t)(raw | 0x80);
    *at++ = (uint8_t)raw;
    return at;
}

#endif
