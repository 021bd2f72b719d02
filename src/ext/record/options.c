#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ext/record/recording.h"
#include "object/object.h"
#include "system/os.h"

#define SIZE_MIN_BYTES ((size_t)1 << 20)
/* The end of a recording looks at all of its tables, whose size is a part of the file's. */
#define SIZE_MAX_BYTES ((size_t)64 << 30)
#define DEPTH_DEFAULT 16u

#define REFUSE(...)                                                                                \
    do {                                                                                           \
        umf_log_error("umfRecordStart", __VA_ARGS__);                                              \
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;                                                  \
    } while (0)

static umf_result_t pools_check(const umf_record_params_t *params) {
    if (params->pools == NULL && params->pool_count > 0) {
        REFUSE("pools is NULL, and pool_count is %zu: name as many pools, or set both to 0",
               params->pool_count);
    }
    if (params->pools != NULL && params->pool_count == 0) {
        REFUSE("pool_count is 0, and pools is not NULL: say how many pools there are");
    }
    for (size_t i = 0; i < params->pool_count; i++) {
        if (!umf_pool_check(params->pools[i], "umfRecordStart")) {
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_record_params_check(const umf_record_params_t *params) {
    if (params->struct_size < sizeof(*params)) {
        REFUSE("struct_size is %zu, it must be sizeof(umf_record_params_t), %zu",
               params->struct_size, sizeof(*params));
    }
    if (params->path && !*params->path) {
        REFUSE("path is empty: name a file, or pass NULL for memory");
    }
    if (params->size != 0 && (params->size < SIZE_MIN_BYTES || params->size > SIZE_MAX_BYTES)) {
        REFUSE(
            "size is %zu bytes, it must be at least 1 MiB and at most 64 GiB, or 0 for the default",
            params->size);
    }
    if (params->stack_depth > UMF_RECORD_FRAMES) {
        REFUSE("stack_depth is %u, at most %u frames are possible", params->stack_depth,
               UMF_RECORD_FRAMES);
    }
    if (params->max_size != 0 && params->min_size > params->max_size) {
        REFUSE("min_size is %zu, more than max_size, %zu: nothing would be recorded",
               params->min_size, params->max_size);
    }
    return pools_check(params);
}

bool umf_record_path(const char *path, char *to, size_t size) {
    size_t length = 0;
    while (*path && length + 1 < size) {
        if (path[0] == '%' && path[1] == 'p') {
            length += (size_t)snprintf(to + length, size - length, "%d", umf_os_pid());
            path += 2;
        } else {
            to[length++] = *path++;
        }
    }
    if (length < size) {
        to[length] = 0;
    }
    return *path == 0 && length < size;
}

/* --- UMF_RECORD --- */

/* A number with a suffix K, M, G or T. */
static bool parse_size(const char *text, size_t *size) {
    static const char suffixes[] = "KMGT";
    char *end;
    if (*text < '0' || *text > '9') {
        return false;
    }
    unsigned long long value = strtoull(text, &end, 10);
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    unsigned shift = suffix ? 10 * (unsigned)(suffix - suffixes + 1) : 0;
    *size = (size_t)value << shift;
    return *size >> shift == value && end[suffix ? 1 : 0] == 0;
}

static bool parse_word(umf_record_params_t *params, const char *word) {
    size_t value = DEPTH_DEFAULT;
    if (strcmp(word, "leaks") == 0) {
        params->leaks = params->leaks ? params->leaks : 1;
        return true;
    }
    if (strcmp(word, "allow-destroyed") == 0) {
        params->leaks = UMF_RECORD_LEAKS_ALLOW_DESTROYED;
        return true;
    }
    if (strcmp(word, "stacks") == 0 ||
        (strncmp(word, "stacks=", 7) == 0 && parse_size(word + 7, &value) && value <= 64)) {
        params->stack_depth = (unsigned)value;
        return true;
    }
    if (strncmp(word, "size=", 5) == 0) {
        return parse_size(word + 5, &params->size);
    }
    return strncmp(word, "rate=", 5) == 0 && parse_size(word + 5, &params->rate);
}

umf_result_t umf_record_options_parse(umf_record_options_t *options, const char *text, char *why,
                                      size_t why_size) {
    size_t length = strcspn(text, ",");
    *options = (umf_record_options_t){.params = UMF_RECORD_PARAMS_INIT, .by_environment = true};
    if (length >= sizeof(options->path_room)) {
        snprintf(why, why_size, "the name of the file is too long");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    memcpy(options->path_room, text, length); /* the zero is there */
    if (length > 0 && !parse_word(&options->params, options->path_room)) {
        options->params.path = options->path_room;
    }
    for (text += length; *text == ','; text += length) {
        char word[64] = "";
        length = strcspn(++text, ",");
        memcpy(word, text, length < sizeof(word) ? length : sizeof(word) - 1);
        if (!parse_word(&options->params, word)) {
            snprintf(why, why_size,
                     "'%s' is none of stacks, stacks=FRAMES (up to 64), leaks, allow-destroyed, "
                     "size=BYTES, rate=NUMBER",
                     word);
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
    }
    return UMF_RESULT_SUCCESS;
}
