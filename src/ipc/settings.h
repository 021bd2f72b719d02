/*
 * Settings: the settings of IPC, "umf.ipc.<path>".
 */
#ifndef UMF_SRC_IPC_SETTINGS_H
#define UMF_SRC_IPC_SETTINGS_H

/* Called once for each start of the library, before the configuration is read, which
 * may set them. */
void umf_ipc_settings_init(void);

#endif
