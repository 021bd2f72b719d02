/* The parts of umfctl. Each command writes its report and returns an exit status. */
#ifndef UMFCTL_H
#define UMFCTL_H

#include <stddef.h>

int umfctl_info(void);
int umfctl_bandwidth(void);
int umfctl_check(void);
int umfctl_settings(void);
int umfctl_reap(void);

/* What --size says; 0: nothing. */
extern size_t umfctl_size;

/* Sections that all reports begin with: library and machine. */
void umfctl_where(void);

/* The sections of info that look at the machine. */
void machine_nodes(void);
void machine_devices(void);
void machine_limits(void);

#endif /* UMFCTL_H */
