/*
 * Reading text that people write: creation text, settings, configuration. One failure of creation
 * text is kept per thread, with its position, for umfTextError.
 */
#ifndef UMF_SRC_CTL_TEXT_H
#define UMF_SRC_CTL_TEXT_H

#include "system/common.h"

/* Longest creation text, without its NUL. */
#define UMF_TEXT_MAX ((size_t)64 * 1024)

/* What of a word is shown in a message. */
#define UMF_TEXT_SHOWN 64

/* Copies at most UMF_TEXT_SHOWN characters for a message; what is not printable ASCII becomes '?'
 * and a cut is marked by "...". */
typedef struct umf_text_word_t {
    char text[UMF_TEXT_SHOWN + 4];
} umf_text_word_t;
umf_text_word_t umf_text_show(const char *word, size_t length);

/* Appends to a NUL-terminated buffer; what does not fit is cut. */
void umf_text_append(char *buffer, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* White space, whatever the locale. */
static inline bool umf_text_is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}
#define UMF_TEXT_SPACES " \t\n\v\f\r"

/* What a thread is reading; positions count from its start. Lives on the reader's stack. */
typedef struct umf_text_scope_t {
    const char *begin;
    size_t length;
    const char *subject; /* "" or whose settings are read: " of provider 'os'" */
    const struct umf_text_scope_t *outer;
} umf_text_scope_t;

/* Begins reading `text`; a part of the text being read keeps that text's positions. `scope` must
 * stay until the end. */
void umf_text_begin(umf_text_scope_t *scope, const char *text, size_t length, const char *subject);
void umf_text_end(const umf_text_scope_t *scope);
const char *umf_text_subject(void);

/* Records and logs why creation from text failed; `at` is where in the text, or NULL. Returns
 * `result`. */
umf_result_t umf_text_fail(umf_result_t result, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts ": <cause>" behind the failure recorded last; the log has the cause already. */
void umf_text_add_cause(const char *cause);

/* "" when the thread's last creation from text succeeded; umf_text_forget makes it so. */
const char *umf_text_error(void);
void umf_text_forget(void);

#endif
