/*
 * Settings: what of IPC can be set, "umf.ipc.<path>".
 */
#ifndef UMF_SRC_IPC_SETTINGS_H
#define UMF_SRC_IPC_SETTINGS_H

/* Before the configuration is read, which may set them. Once for each start of the library. */
void umf_ipc_settings_init(void);

#endif
