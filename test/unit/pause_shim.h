/* A page of the pointer map whose list is being changed, as a writer leaves it that cannot run. */
#ifndef UMF_TEST_UNIT_PAUSE_SHIM_H
#define UMF_TEST_UNIT_PAUSE_SHIM_H

#ifdef __cplusplus
extern "C" {
#endif

int pause_shim_list_make(void);           /* 0: no memory */
void pause_shim_list_change(void);        /* begins a change, or ends it */
unsigned long pause_shim_list_find(void); /* the word that the page has */

#ifdef __cplusplus
}
#endif

#endif
