#include "keys.h"

#include <stdlib.h>
#include <string.h>

#include "record.h"

/* SipHash with one round per word and three at the end, as Python and Rust hash bytes. */
#define ROTATE(word, by) ((word) << (by) | (word) >> (64 - (by)))
#define ROUND(a, b, c, d)                                                                                      \
    do {                                                                                                       \
        a += b, c += d, b = ROTATE(b, 13) ^ a, d = ROTATE(d, 16) ^ c, a = ROTATE(a, 32);                       \
        c += b, a += d, b = ROTATE(b, 17) ^ c, d = ROTATE(d, 21) ^ a, c = ROTATE(c, 32);                       \
    } while (0)

static inline uint64_t hash_of(const uint64_t *secret, const uint8_t *data, int64_t size)
{
    uint64_t a = secret[0] ^ 0x736f6d6570736575u, b = secret[1] ^ 0x646f72616e646f6du;
    uint64_t c = secret[0] ^ 0x6c7967656e657261u, d = secret[1] ^ 0x7465646279746573u;
    uint64_t word, rest = (uint64_t)size << 56;
    const uint8_t *whole = data + (size & ~(int64_t)7);

    for (; data < whole; data += 8) {
        memcpy(&word, data, sizeof word);
        d ^= word;
        ROUND(a, b, c, d);
        a ^= word;
    }
    for (int place = 0; place < (size & 7); place++)
        rest |= (uint64_t)data[place] << (8 * place);
    d ^= rest;
    ROUND(a, b, c, d);
    a ^= rest;
    c ^= 0xff;
    ROUND(a, b, c, d);
    ROUND(a, b, c, d);
    ROUND(a, b, c, d);
    return a ^ b ^ c ^ d;
}

enum { FIRST_SLOTS = 1 << 10, AT_ONCE = 32 };

typedef struct {
    uint32_t tag;   /* the upper half of the hash: most other keys differ there already */
    uint32_t entry; /* its number, and one more: 0 is a free slot */
} slot;

typedef struct {
    uint64_t hash;
    int64_t offset;
    int64_t position; /* of the key's bytes */
    int64_t length;
} entry;

struct dray_key_offsets {
    uint64_t secret[2];
    slot *slots;
    uint64_t mask; /* slots are a power of two, at most half of them taken */
    entry *entries;
    int64_t count, room;
    uint8_t *bytes;
    int64_t used, size;
};

dray_key_offsets *dray_key_offsets_new(const uint8_t *secret)
{
    dray_key_offsets *keys = calloc(1, sizeof *keys);

    if (!keys)
        return NULL;
    memcpy(keys->secret, secret, sizeof keys->secret);
    keys->slots = calloc(FIRST_SLOTS, sizeof *keys->slots);
    keys->mask = FIRST_SLOTS - 1;
    if (!keys->slots) {
        free(keys);
        return NULL;
    }
    return keys;
}

void dray_key_offsets_free(dray_key_offsets *keys)
{
    if (!keys)
        return;
    free(keys->slots);
    free(keys->entries);
    free(keys->bytes);
    free(keys);
}

static int grow_slots(dray_key_offsets *keys)
{
    uint64_t mask = 2 * keys->mask + 1;
    slot *slots = calloc(mask + 1, sizeof *slots);

    if (!slots)
        return 0;
    for (int64_t number = 0; number < keys->count; number++) {
        uint64_t hash = keys->entries[number].hash, at = hash & mask;
        while (slots[at].entry)
            at = (at + 1) & mask;
        slots[at] = (slot){(uint32_t)(hash >> 32), (uint32_t)(number + 1)};
    }
    free(keys->slots);
    keys->slots = slots;
    keys->mask = mask;
    return 1;
}

/* Room for `more` things of `size` bytes behind `used` of them; where there is none, half as much again. */
static int make_room(void **memory, int64_t *room, int64_t used, int64_t more, size_t size)
{
    int64_t wanted = used + more;
    void *grown;

    if (wanted <= *room && *memory)
        return 1;
    wanted += wanted / 2 + 1024;
    grown = realloc(*memory, (size_t)wanted * size);
    if (!grown)
        return 0;
    *memory = grown;
    *room = wanted;
    return 1;
}

static const char *add_one(dray_key_offsets *keys, uint64_t hash, const uint8_t *key, int64_t length,
                           int64_t offset)
{
    uint64_t at = hash & keys->mask;
    uint32_t tag = (uint32_t)(hash >> 32);

    for (; keys->slots[at].entry; at = (at + 1) & keys->mask) {
        if (keys->slots[at].tag != tag)
            continue;
        entry *found = &keys->entries[keys->slots[at].entry - 1];
        if (found->length == length && !memcmp(keys->bytes + found->position, key, (size_t)length)) {
            if (offset > found->offset)
                found->offset = offset;
            return 0;
        }
    }
    if (keys->count >= INT32_MAX)
        return "there are more keys than one file has";
    if (!make_room((void **)&keys->entries, &keys->room, keys->count, 1, sizeof *keys->entries) ||
        !make_room((void **)&keys->bytes, &keys->size, keys->used, length, 1))
        return "there is no memory for the keys";
    memcpy(keys->bytes + keys->used, key, (size_t)length);
    keys->entries[keys->count++] = (entry){hash, offset, keys->used, length};
    keys->used += length;
    keys->slots[at] = (slot){tag, (uint32_t)keys->count};
    if ((uint64_t)keys->count > keys->mask / 2 && !grow_slots(keys))
        return "there is no memory for the keys";
    return 0;
}

const char *dray_key_offsets_add(dray_key_offsets *keys, const dray_bytes_column *column,
                                 const int64_t *offsets, int64_t first, int64_t count)
{
    uint64_t hashes[AT_ONCE];

    /* Some at a time: the slots of the next keys are on their way while one is looked up. */
    for (int64_t done = 0; done < count; done += AT_ONCE) {
        int64_t here = count - done < AT_ONCE ? count - done : AT_ONCE;
        const int32_t *bounds = column->offsets + first + done;
        for (int64_t row = 0; row < here; row++) {
            if (bounds[row] < 0 || bounds[row + 1] < bounds[row] || bounds[row + 1] > column->size)
                return "a key reaches past the end of its column";
            hashes[row] =
                hash_of(keys->secret, column->data + bounds[row], (int64_t)bounds[row + 1] - bounds[row]);
            __builtin_prefetch(&keys->slots[hashes[row] & keys->mask]);
        }
        for (int64_t row = 0; row < here; row++) {
            int64_t place = first + done + row;
            if (column->validity && !(column->validity[place >> 3] >> (place & 7) & 1))
                continue;
            const char *wrong = add_one(keys, hashes[row], column->data + bounds[row],
                                        (int64_t)bounds[row + 1] - bounds[row], offsets[done + row]);
            if (wrong)
                return wrong;
        }
    }
    return 0;
}

int64_t dray_key_offsets_count(const dray_key_offsets *keys)
{
    return keys->count;
}

void dray_key_offsets_copy(const dray_key_offsets *keys, int64_t *into)
{
    for (int64_t number = 0; number < keys->count; number++)
        into[number] = keys->entries[number].offset;
}

static inline int stays(const dray_kept *kept, const dray_record *record, int64_t offset, int is_listed)
{
    if (offset == kept->last)
        return 1;
    if (record->key_length < 0)
        return kept->keyless;
    return is_listed && !(record->value_length < 0 && offset < kept->tombstones_below);
}

int64_t dray_pick(const uint8_t *data, int64_t size, const dray_header *header, const dray_kept *kept,
                  int64_t *places, dray_extent *extent)
{
    const uint8_t *cursor = data, *end = data + size;
    int64_t listed = 0, high = kept->count, picked = 0;

    while (listed < high) { /* the first that is not below the batch */
        int64_t middle = (listed + high) / 2;
        if (kept->offsets[middle] < header->base_offset)
            listed = middle + 1;
        else
            high = middle;
    }
    for (int32_t index = 0; index < header->record_count; index++) {
        const uint8_t *at = cursor, *start = cursor;
        int64_t time, offset;
        int32_t length, delta;
        if (!dray_read_varint(&at, end, &length) || length < 1 || length > end - at)
            return -1;
        cursor = at + length;
        at++; /* attributes */
        if (!dray_read_varlong(&at, cursor, &time) || !dray_read_varint(&at, cursor, &delta))
            return -1;
        offset = (int64_t)((uint64_t)header->base_offset + (uint64_t)delta);
        while (listed < kept->count && kept->offsets[listed] < offset)
            listed++;
        int is_listed = listed < kept->count && kept->offsets[listed] == offset;
        if (!is_listed && !kept->keyless && offset != kept->last)
            continue; /* most of them: nothing else of these is looked at */
        dray_record record;
        dray_extent taken = *extent;
        const uint8_t *again = start;
        if (dray_read_record(&again, end, &record, &taken))
            return -1;
        if (!stays(kept, &record, offset, is_listed))
            continue;
        *extent = taken;
        places[picked++] = start - data;
    }
    return picked;
}
