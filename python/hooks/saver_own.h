/* Shared by the files of the saver. */
#ifndef UMF_PYTHON_HOOKS_SAVER_OWN_H
#define UMF_PYTHON_HOOKS_SAVER_OWN_H

#include <stdbool.h>

bool saver_retain_by_environment(void);

#endif
