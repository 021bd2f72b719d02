/*
 * Libraries found at run time. One list of symbols for each library loads, stores and checks them.
 */
#ifndef UMF_SRC_BASE_DL_H
#define UMF_SRC_BASE_DL_H

#include <stdbool.h>
#include <stddef.h>

#include <umf/base.h>

typedef struct umf_dl_symbol_t {
    const char *name;
    size_t offset; /* of the function pointer in the caller's table */
    bool optional; /* if it is missing, NULL is stored */
} umf_dl_symbol_t;

/* Opens `name`. NULL: it is missing. With `loaded_only` only libraries that are loaded already are
 * searched. `why` (may be NULL) receives the loader's text on failure. */
void *umf_dl_open(const char *name, bool loaded_only, char *why, size_t why_size);
/* Opens a library among the loaded ones, else on the system. */
void *umf_dl_find(const char *name, char *why, size_t why_size);
void umf_dl_close(void *library);
/* A number that grows whenever the process loads a library. Much faster than umf_dl_open. */
uint64_t umf_dl_generation(void);

/* One symbol, or NULL. */
void *umf_dl_symbol(void *library, const char *name);

/* Whether the program's function `name` comes from a library whose file is called `library`, with
 * any version behind it. */
bool umf_dl_is_from(const char *name, const char *library);

/* Fills `table`. Returns NULL, or the first missing symbol; then the table is left untouched. */
const char *umf_dl_fill(void *library, const umf_dl_symbol_t *symbols, size_t count, void *table);

/* Fills `table`. DEPENDENCY_UNAVAILABLE with a log line that names the missing symbol. */
umf_result_t umf_dl_load(void *library, const char *library_name, const umf_dl_symbol_t *symbols,
                         size_t count, void *table);

#endif
