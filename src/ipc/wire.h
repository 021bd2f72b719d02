/*
 * Wire: the bytes of an IPC handle.
 *
 * A handle is a header of 96 bytes followed by the provider's own data. Every number is little
 * endian, nothing is padding, so two handles for the same pointer are equal byte for byte.
 *
 *   offset  bytes  content
 *        0      4  magic "UMFH"
 *        4      2  version of this format
 *        6      2  length of the header
 *        8      4  length of the whole handle
 *       12      4  producer: process id
 *       16      8  kind of the provider (hash of its kind's name), 0 if unknown
 *       24      8  producer: boot of the machine it runs on
 *       32      8  producer: start time (process.h); with the id it names one process
 *       40      8  base address of the provider's allocation in the producer
 *       48      8  its size
 *       56      8  export id: unique in the producer, growing, never reused
 *       64      4  producer: namespace of its process id
 *       68      4  length of the provider's data
 *       72      8  checksum of the provider's data
 *       80      8  offset of the pointer from the base
 *       88      8  checksum of bytes 0..87
 *       96         the provider's data
 *
 * Checksums: H and M are the sum and the mixing of system/checksum.h. The data's sum is H(data),
 * the header's is H(bytes 0..79) + M(offset + 1).
 *
 * Bytes 0..79 and the data are the same for every pointer into one allocation. So a handle for
 * another pointer is made, and compared with a known one, without reading the rest again.
 *
 * The checksums find accidental damage (any change within eight aligned bytes with certainty, any
 * other with a probability of 1 - 2^-64). They do not stop an attacker. Therefore limits and
 * identities are also checked before anything is used.
 */
#ifndef UMF_SRC_IPC_WIRE_H
#define UMF_SRC_IPC_WIRE_H

#include "system/common.h"

#define UMF_WIRE_VERSION 3
#define UMF_WIRE_HEADER 96 /* a multiple of 16: the provider's data is aligned as the handle is */
#define UMF_WIRE_FIXED 80  /* the bytes that all handles of one allocation have in common */

/* A producer's data may be this much longer than that of the consumer's provider, because names and
 * paths differ. */
#define UMF_WIRE_DATA_SLACK 4096

/* The header in the machine's own byte order. */
typedef struct umf_wire_t {
    uint64_t kind;
    uint64_t boot_id;
    uint64_t start_time;
    uint64_t base;
    uint64_t size;
    uint64_t export_id;
    uint64_t offset;
    uint64_t data_sum;
    uint64_t fixed_sum; /* sum of the first UMF_WIRE_FIXED bytes; umf_wire_check sets it */
    uint32_t pid;
    uint32_t pid_ns;
    uint32_t data_size;
} umf_wire_t;

/* The length of a handle with `data_size` bytes of provider data. false: no handle
 * can be so long. */
bool umf_wire_size(size_t data_size, size_t *size);

/* Writes the header; the data already follows it. Computes the sums and returns that of the first
 * UMF_WIRE_FIXED bytes. */
uint64_t umf_wire_pack(const umf_wire_t *wire, void *handle);

/* Changes a complete handle to one for the pointer at `offset`. `fixed_sum` is the sum of its first
 * UMF_WIRE_FIXED bytes. */
uint64_t umf_wire_fixed_sum(const void *handle);
void umf_wire_set_offset(void *handle, uint64_t fixed_sum, uint64_t offset);

/* Reads the offset, if the header's checksum confirms it. The fixed bytes are known to be right. */
bool umf_wire_get_offset(const void *handle, uint64_t fixed_sum, uint64_t *offset);

/*
 * Reads a header of UMF_WIRE_HEADER bytes. INVALID_ARGUMENT, with a message that names the
 * wrong member, unless magic, version, lengths and checksum are right, the offset lies inside the
 * allocation, the allocation in the address space, and the data is not longer than `data_limit`. No
 * alignment is needed.
 */
umf_result_t umf_wire_check(const void *handle, size_t data_limit, umf_wire_t *wire);

/* The same for the data. */
umf_result_t umf_wire_check_data(const umf_wire_t *wire, const void *data);

/* A number that most likely differs between allocations. Reads the header, which may
 * be anything. */
uint32_t umf_wire_hint(const void *handle);

/* 64-bit hash of a name (FNV-1a), never 0. */
uint64_t umf_wire_name_hash(const char *name);

#endif
