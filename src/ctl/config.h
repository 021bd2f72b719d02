/* Configuration from the environment: "path=value" entries separated by ';'. */
#ifndef UMF_SRC_CTL_CONFIG_H
#define UMF_SRC_CTL_CONFIG_H

#include "system/common.h"

#define UMF_CONFIG_FILE_MAX ((size_t)1024 * 1024)

/* Reads UMF_CONF, then the file UMF_CONF_FILE. */
void umf_config_load(void);

/* Writes every entry of `text`; `origin` names it in messages. */
void umf_config_apply(const char *origin, const char *text, size_t length);
/* The same for a file, whose comments and white space are removed first. */
void umf_config_apply_file(const char *path);

#endif
