/*
 * Settings: the node "umf.ipc" of the settings tree.
 */
#ifndef UMF_SRC_IPC_SETTINGS_H
#define UMF_SRC_IPC_SETTINGS_H

/* Before umf_ctl_init. */
void umf_ipc_settings_init(void);

#endif
