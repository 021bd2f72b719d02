/* What umfctl vault shows: visitors, whose last argument is not used. */
#ifndef UMFCTL_VAULT_SHOW_H
#define UMFCTL_VAULT_SHOW_H

#include <umf/vault.h>

int vault_show(const char *name, const umf_vault_stat_t *stat, void *arg);
int vault_show_claim(const umf_vault_claim_stat_t *stat, void *arg);
int vault_show_entry(const umf_vault_entry_t *entry, void *arg);

#endif
