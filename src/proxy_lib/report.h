/* Messages of the proxy library. They go where UMF_LOG sends the library's own. */
#ifndef UMF_SRC_PROXY_LIB_REPORT_H
#define UMF_SRC_PROXY_LIB_REPORT_H

/* One line of level WARN, if such lines are written. */
void umf_proxy_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line on stderr, whatever UMF_LOG says. */
void umf_proxy_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
