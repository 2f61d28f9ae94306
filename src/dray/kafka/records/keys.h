/* The last offset of every key, and the records of a batch that are left once it is known.
 *
 * Keys are compared as bytes. They are found by a hash with a secret: with a bare one a producer could choose
 * keys that all fall on one place, and every look would pass over all of them. */
#ifndef DRAY_KEYS_H
#define DRAY_KEYS_H

#include "columns.h"

enum { DRAY_SECRET_SIZE = 16 };

typedef struct dray_key_offsets dray_key_offsets;

/* NULL if there is no memory for it. `secret` has DRAY_SECRET_SIZE bytes. */
dray_key_offsets *dray_key_offsets_new(const uint8_t *secret);
void dray_key_offsets_free(dray_key_offsets *keys);

/* Takes rows `first` to `first + count` of a column of keys, with the offset of each. Null keys are passed over; of two rows of one key the
 * greater offset counts. Answers NULL, or what is wrong. */
const char *dray_key_offsets_add(dray_key_offsets *keys, const dray_bytes_column *column,
                                 const int64_t *offsets, int64_t first, int64_t count);

int64_t dray_key_offsets_count(const dray_key_offsets *keys);

/* Writes the offset of each key to `into`, in the order in which the keys came. */
void dray_key_offsets_copy(const dray_key_offsets *keys, int64_t *into);

/* Which records stay. */
typedef struct {
    const int64_t *offsets; /* rising: a record with a key stays if its offset is among them, */
    int64_t count;
    int64_t tombstones_below; /* unless it is a tombstone below this offset */
    int64_t last;             /* the record at this offset stays in any case */
    int keyless;              /* do records without a key stay? */
} dray_kept;

/* Writes where the records begin that stay to `places`, which has room for all of the batch, and adds what
 * they take to `extent`. The batch is one that dray_walk found good. Answers how many, or -1 if it was changed
 * since. */
int64_t dray_pick(const uint8_t *data, int64_t size, const dray_header *header, const dray_kept *kept,
                  int64_t *places, dray_extent *extent);

#endif
