/*
 * Rules: how to get from the frame of a return address to that of its caller. They come from the
 * unwind information that compilers write for exceptions (.eh_frame), so no code needs frame
 * pointers. A rule is worked out at the first sight of an address and kept.
 */
#ifndef UMF_SRC_EXT_RECORD_STACK_RULES_H
#define UMF_SRC_EXT_RECORD_STACK_RULES_H

#include "system/atomic.h"
#include "system/common.h"

typedef enum umf_record_rule_kind_t {
    UMF_RECORD_RULE_NONE,     /* there is no information about the code */
    UMF_RECORD_RULE_ODD,      /* there is, and a rule cannot say it: a signal handler's frame */
    UMF_RECORD_RULE_SP,       /* the frame ends at the stack pointer plus `offset` */
    UMF_RECORD_RULE_FP,       /* at the frame pointer plus `offset` */
    UMF_RECORD_RULE_FP_DEREF, /* at the address that lies there */
    UMF_RECORD_RULE_END       /* it is the outermost frame */
} umf_record_rule_kind_t;

typedef enum umf_record_saved_t {
    UMF_RECORD_SAVED_NOT,    /* the register still has the caller's value */
    UMF_RECORD_SAVED_AT_END, /* it lies at the frame's end plus `fp` words */
    UMF_RECORD_SAVED_AT_FP   /* at the frame pointer plus `fp` words */
} umf_record_saved_t;

typedef struct umf_record_rule_t {
    uint8_t kind;  /* umf_record_rule_kind_t */
    uint8_t saved; /* umf_record_saved_t, of the frame pointer */
    int8_t fp, ra; /* words; `ra`: where the return address lies, from the frame's end */
    int32_t offset;
} umf_record_rule_t;
_Static_assert(sizeof(umf_record_rule_t) == sizeof(uint64_t), "one load");

typedef struct umf_record_rules_t {
    struct {
        _Atomic(uint64_t) address; /* 0: not used. Written after the rule, under the lock */
        _Atomic(uint64_t) rule;
    } entries[65536];
    uint32_t count; /* Sync: is_locked */
    _Atomic(bool) is_locked;
} umf_record_rules_t;

/* Whether this system has what it takes. Calls the loader at the first time. */
bool umf_record_rules_init(void);

UMF_COLD umf_record_rule_t umf_record_rule_slow(umf_record_rules_t *rules, uint64_t address);

static inline size_t umf_record_rule_place(uint64_t address) {
    return (size_t)((address * UINT64_C(0x9E3779B97F4A7C15)) >> 48);
}

static inline umf_record_rule_t umf_record_rule_at(umf_record_rules_t *rules, size_t place) {
    uint64_t word = atomic_load_explicit(&rules->entries[place].rule, memory_order_relaxed);
    umf_record_rule_t rule;
    __builtin_memcpy(&rule, &word, sizeof(rule));
    return rule;
}

static inline umf_record_rule_t umf_record_rule(umf_record_rules_t *rules, uint64_t address) {
    size_t place = umf_record_rule_place(address);
    if (umf_likely(atomic_load_explicit(&rules->entries[place].address, memory_order_acquire) ==
                   address)) {
        return umf_record_rule_at(rules, place);
    }
    return umf_record_rule_slow(rules, address);
}

#endif
