/* Names of functions in an ELF file of 64 bit. Such a file is trusted no more than a recording. */
#ifndef UMF_READER_ELF_H
#define UMF_READER_ELF_H

#include "own.h"

typedef struct elf_symbol_t {
    uint64_t address, size;
    uint64_t name; /* offset in the names */
} elf_symbol_t;

typedef struct elf_segment_t {
    uint64_t offset, size, address;
} elf_segment_t;

typedef struct elf_file_t {
    unsigned char build_id[32]; /* zero after its end */
    size_t build_id_size;
    elf_segment_t *segments;
    size_t segment_count;
    elf_symbol_t *symbols; /* by address */
    size_t symbol_count;
    char *names;
    uint64_t name_bytes;
    char debug_link[64];  /* the name of the file with its symbols; "": it names none */
    bool has_all_symbols; /* and not only those for the dynamic linker */
} elf_file_t;

/* What cannot be had is not in it. */
void elf_load(elf_file_t *file, const char *path);
void elf_free(elf_file_t *file);

/* The address that an offset in the file is loaded at. False: it is in no segment. */
bool elf_address(const elf_file_t *file, uint64_t offset, uint64_t *address);

/* The function at an offset in the file, and how far in it that is; NULL: not known. `symbols` may
 * be another file, with the names that are not in `file`. */
const char *elf_function(const elf_file_t *file, const elf_file_t *symbols, uint64_t offset,
                         uint64_t *inside);

#endif
