/* Movement: start and listeners. */
#ifndef UMF_SRC_EXT_MOVEMENT_MOVEMENT_H
#define UMF_SRC_EXT_MOVEMENT_MOVEMENT_H

void umf_movement_init(void);

#endif
