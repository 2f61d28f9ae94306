#include "crc32c.h"

#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* Castagnoli, bits reversed */

/* byte_step[k][b]: what byte b, followed by k zero bytes, does to the register. */
static uint32_t byte_step[8][256];

static uint32_t software_register(uint32_t reg, const uint8_t *data, size_t size)
{
    while (size >= 8) {
        uint32_t low = reg ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                              (uint32_t)data[3] << 24);
        reg = byte_step[7][low & 0xff] ^ byte_step[6][low >> 8 & 0xff] ^ byte_step[5][low >> 16 & 0xff] ^
              byte_step[4][low >> 24] ^ byte_step[3][data[4]] ^ byte_step[2][data[5]] ^
              byte_step[1][data[6]] ^ byte_step[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size-- > 0)
        reg = reg >> 8 ^ byte_step[0][(reg ^ *data++) & 0xff];
    return reg;
}

uint32_t dray_crc32c_software(uint32_t crc, const uint8_t *data, size_t size)
{
    return ~software_register(~crc, data, size);
}

#if defined(__x86_64__)

#include <nmmintrin.h>

/* One crc32 instruction waits three cycles for the one before it, but three chains can run at once.
 * So data is cut into three lanes, and the lanes are joined by moving a register over the zero bytes
 * that stand for the lanes after it. The register is linear, hence four lookups do that move. */
#define LONG_LANE 4096
#define SHORT_LANE 256

static uint32_t over_long_lane[4][256];
static uint32_t over_short_lane[4][256];
static int has_instruction;

static void prepare_lane(uint32_t table[4][256], size_t lane)
{
    static const uint8_t zeros[SHORT_LANE];
    uint32_t moved_bit[32];

    for (int bit = 0; bit < 32; bit++) {
        uint32_t reg = (uint32_t)1 << bit;
        for (size_t done = 0; done < lane; done += sizeof zeros)
            reg = software_register(reg, zeros, sizeof zeros);
        moved_bit[bit] = reg;
    }
    for (int part = 0; part < 4; part++)
        for (int value = 0; value < 256; value++) {
            uint32_t reg = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1)
                    reg ^= moved_bit[8 * part + bit];
            table[part][value] = reg;
        }
}

static inline uint32_t move_over(uint32_t table[4][256], uint32_t reg)
{
    return table[0][reg & 0xff] ^ table[1][reg >> 8 & 0xff] ^ table[2][reg >> 16 & 0xff] ^ table[3][reg >> 24];
}

static inline uint64_t load64(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

#define DEFINE_LANES(name, lane, table)                                                         \
    __attribute__((target("sse4.2"))) static inline uint32_t name(uint32_t reg, const uint8_t *data) \
    {                                                                                           \
        uint64_t first = reg, second = 0, third = 0;                                            \
        for (size_t at = 0; at < (lane); at += 8) {                                             \
            first = _mm_crc32_u64(first, load64(data + at));                                    \
            second = _mm_crc32_u64(second, load64(data + at + (lane)));                         \
            third = _mm_crc32_u64(third, load64(data + at + 2 * (lane)));                       \
        }                                                                                       \
        reg = move_over(table, (uint32_t)first) ^ (uint32_t)second;                             \
        return move_over(table, reg) ^ (uint32_t)third;                                         \
    }

DEFINE_LANES(three_long_lanes, LONG_LANE, over_long_lane)
DEFINE_LANES(three_short_lanes, SHORT_LANE, over_short_lane)

__attribute__((target("sse4.2"))) static uint32_t hardware(uint32_t crc, const uint8_t *data, size_t size)
{
    uint32_t reg = ~crc;

    for (; size >= 3 * LONG_LANE; data += 3 * LONG_LANE, size -= 3 * LONG_LANE)
        reg = three_long_lanes(reg, data);
    for (; size >= 3 * SHORT_LANE; data += 3 * SHORT_LANE, size -= 3 * SHORT_LANE)
        reg = three_short_lanes(reg, data);
    for (; size >= 8; data += 8, size -= 8)
        reg = (uint32_t)_mm_crc32_u64(reg, load64(data));
    for (; size > 0; data++, size--)
        reg = _mm_crc32_u8(reg, *data);
    return ~reg;
}

#endif

void dray_crc32c_prepare(void)
{
    for (int value = 0; value < 256; value++) {
        uint32_t reg = (uint32_t)value;
        for (int bit = 0; bit < 8; bit++)
            reg = reg >> 1 ^ (reg & 1 ? POLYNOMIAL : 0);
        byte_step[0][value] = reg;
    }
    for (int zeros = 1; zeros < 8; zeros++)
        for (int value = 0; value < 256; value++) {
            uint32_t reg = byte_step[zeros - 1][value];
            byte_step[zeros][value] = reg >> 8 ^ byte_step[0][reg & 0xff];
        }
#if defined(__x86_64__)
    prepare_lane(over_long_lane, LONG_LANE);
    prepare_lane(over_short_lane, SHORT_LANE);
    __builtin_cpu_init();
    has_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

uint32_t dray_crc32c(uint32_t crc, const uint8_t *data, size_t size)
{
#if defined(__x86_64__)
    if (has_instruction)
        return hardware(crc, data, size);
#endif
    return dray_crc32c_software(crc, data, size);
}

int dray_crc32c_is_hardware(void)
{
#if defined(__x86_64__)
    return has_instruction;
#else
    return 0;
#endif
}
