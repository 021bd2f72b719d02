/* Messages of the proxy library. They go where UMF_LOG sends the messages of libumf. */
#ifndef UMF_LIB_PROXY_REPORT_H
#define UMF_LIB_PROXY_REPORT_H

#include <stdbool.h>

/* Writes one line of level WARN. false: that level is off, or there is no log. */
bool umf_proxy_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes one line to stderr, whatever UMF_LOG says. */
void umf_proxy_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
