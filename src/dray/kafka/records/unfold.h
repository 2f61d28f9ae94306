/* What compressed batches say they unfold to, read off their frames without decompressing anything. */
#ifndef DRAY_UNFOLD_H
#define DRAY_UNFOLD_H

#include <stdint.h>

/* The sum over the batches in `data`, as far as whole batches can be told apart; at least 1 for a compressed
   one, nothing for others. Frames may lie, and what cannot be read counts as nothing: decompress with this as
   the limit, and an honest batch fits. */
int64_t dray_unfolds_to(const uint8_t *data, int64_t available);

#endif
