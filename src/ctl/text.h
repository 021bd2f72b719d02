/*
 * Reading text that users write: creation text, settings, configuration. The last failure of
 * creation text is stored for each thread, with its position, for umfTextError.
 */
#ifndef UMF_SRC_CTL_TEXT_H
#define UMF_SRC_CTL_TEXT_H

#include "system/common.h"

/* Longest creation text, without its NUL. */
#define UMF_TEXT_MAX ((size_t)64 * 1024)

/* The number of characters of a word that a message shows. */
#define UMF_TEXT_SHOWN 64

/* Copies at most UMF_TEXT_SHOWN characters for a message. Characters that are not printable ASCII
 * become '?', and "..." marks a cut. */
typedef struct umf_text_word_t {
    char text[UMF_TEXT_SHOWN + 4];
} umf_text_word_t;
umf_text_word_t umf_text_show(const char *word, size_t length);

/* Is one word the other with at most two neighbouring characters changed, added, removed or
 * exchanged? Words of up to two characters are near to none. */
bool umf_text_is_near(const char *word, const char *other);

/* Appends to a NUL-terminated buffer. Text that does not fit is cut. */
void umf_text_append(char *buffer, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* White space, independent of the locale. */
static inline bool umf_text_is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}
#define UMF_TEXT_SPACES " \t\n\v\f\r"

/* The text that a thread reads; positions count from its start. It is on the reader's stack. */
typedef struct umf_text_scope_t {
    const char *begin;
    size_t length;
    const char *subject; /* "", or the owner of the settings: " of provider 'os'" */
    const struct umf_text_scope_t *outer;
} umf_text_scope_t;

/* Begins to read `text`. If it is a part of the text that is being read, positions stay those of
 * the whole. `scope` must stay until umf_text_end. */
void umf_text_begin(umf_text_scope_t *scope, const char *text, size_t length, const char *subject);
void umf_text_end(const umf_text_scope_t *scope);
const char *umf_text_subject(void);

/* Stores and logs why creation from text failed. `at` is the place in the text, or NULL. Returns
 * `result`. */
umf_result_t umf_text_fail(umf_result_t result, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends ": <cause>" to the last stored failure, and to the last error of the thread. The log has
 * the cause already. */
void umf_text_add_cause(const char *cause);

/* "" when the thread's last creation from text succeeded; umf_text_forget makes it so. */
const char *umf_text_error(void);
void umf_text_forget(void);

#endif
