/* Doubly linked ring with a head. The links are inside the elements. */
#ifndef UMF_SRC_DS_LIST_H
#define UMF_SRC_DS_LIST_H

#include <stdbool.h>

typedef struct umf_list_t {
    struct umf_list_t *prev, *next;
} umf_list_t;

static inline void umf_list_init(umf_list_t *head) {
    head->prev = head->next = head;
}

static inline bool umf_list_is_empty(const umf_list_t *head) {
    return head->next == head;
}

static inline void umf_list_add(umf_list_t *head, umf_list_t *item) {
    item->prev = head;
    item->next = head->next;
    head->next->prev = item;
    head->next = item;
}

static inline void umf_list_add_tail(umf_list_t *head, umf_list_t *item) {
    umf_list_add(head->prev, item);
}

static inline void umf_list_remove(umf_list_t *item) {
    item->prev->next = item->next;
    item->next->prev = item->prev;
    item->prev = item->next = item;
}

#endif
