/* Vaults that are served to other machines. */
#ifndef UMF_REMOTE_SERVE_H
#define UMF_REMOTE_SERVE_H

#include <stdbool.h>

#include <umf/remote.h>

/* Prints a line on stderr, with the library's reason for the last failure if `has_reason`. */
void complain(bool has_reason, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Serves the current generations until `*ends` is set; `path`: a file for the addresses, or NULL.
 * The exit status. */
int serve(umf_remote_handle_t remote, char **names, unsigned count, const char *path,
          const volatile int *ends);

#endif
