/*
 * Last native error of a provider kind.
 */
#include "base/native.h"

#include <stdio.h>

#include "base/log.h"
#include "base/message_buffer.h"
#include "system/os.h"

umf_result_t umf_native_fail(umf_native_t *last, int32_t code, int errnum) {
    last->code = (int16_t)code;
    last->errnum = (int16_t)errnum;
    return UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
}

umf_result_t umf_native_fail_at(umf_native_t *last, const char *kind, int32_t code, int errnum,
                                const char *what, const void *ptr, size_t size) {
    umf_log_write(UMF_LOG_LEVEL_ERROR, errnum, kind, "%s %zu bytes at %p failed", what, size, ptr);
    return umf_native_fail(last, code, errnum);
}

static const char *native_text(const umf_native_text_t *texts, size_t count, int32_t code) {
    for (size_t i = 0; i < count; i++) {
        if (texts[i].code == code) {
            return texts[i].text;
        }
    }
    return "no native error";
}

bool umf_native_has_places(const char **message, const int32_t *code) {
    if (!message || !code) {
        UMF_LOG_ERROR("the last native error was requested without a place for its %s",
                      message ? "code" : "message");
    }
    return message && code;
}

umf_result_t umf_native_get(const umf_native_t *last, const umf_native_text_t *texts, size_t count,
                            const char **message, int32_t *code) {
    if (!umf_native_has_places(message, code)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    const char *text = native_text(texts, count, last->code);
    char *line = last->errnum != 0 ? umf_message_buffer(UMF_MESSAGE_BUFFER_NATIVE) : NULL;
    if (line) {
        char system_text[128];
        snprintf(line, UMF_MESSAGE_BUFFER_SIZE, "%s: %s", text,
                 umf_os_error_text(last->errnum, system_text, sizeof(system_text)));
    }
    *message = line ? line : text;
    *code = last->code;
    return UMF_RESULT_SUCCESS;
}
