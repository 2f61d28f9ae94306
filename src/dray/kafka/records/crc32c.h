/* CRC32C (Castagnoli), the checksum of Kafka record batches and of WAL objects. */
#ifndef DRAY_CRC32C_H
#define DRAY_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Builds the tables and picks the fastest way this processor has. Call once, before any other. */
void dray_crc32c_prepare(void);

/* `crc` is the checksum of what came before (0 at the start); the result is that of both together. */
uint32_t dray_crc32c(uint32_t crc, const uint8_t *data, size_t size);

/* The same by tables alone: what processors without the instruction use, and what tests compare with. */
uint32_t dray_crc32c_software(uint32_t crc, const uint8_t *data, size_t size);

/* Whether dray_crc32c runs on the processor's own instruction. */
int dray_crc32c_is_hardware(void);

#endif
