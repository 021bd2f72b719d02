/*
 * Reads .eh_frame (DWARF's call frame information, and the index of the Linux Standard Base,
 * .eh_frame_hdr). The C library finds that of an address without a lock (glibc 2.35).
 */
#include "ext/record/stack/rules.h"

#include <dlfcn.h>
#include <string.h>

#include "ext/record/recording.h"

#if defined(__x86_64__)
enum { REG_FP = 6, REG_SP = 7, REG_RA = 16, OP_FP = 0x70 + REG_FP };
#define IS_KNOWN_MACHINE 1
#elif defined(__aarch64__)
enum { REG_FP = 29, REG_RA = 30, REG_SP = 31, OP_FP = 0x70 + REG_FP };
#define IS_KNOWN_MACHINE 1
#else
enum { REG_FP, REG_SP, REG_RA, OP_FP };
#define IS_KNOWN_MACHINE 0
#endif

enum { OP_DEREF = 0x06, STATES = 8, ENCODED_PC_RELATIVE_4 = 0x1b, ENCODED_TABLE = 0x3b };

/* As struct dl_find_object of <dlfcn.h>, which older C libraries lack. */
typedef struct found_t {
    unsigned long long flags;
    void *map_start, *map_end, *link_map, *eh_frame;
    unsigned long long reserved[7];
} found_t;

static _Atomic(void *) find_object;

bool umf_record_rules_init(void) {
    if (IS_KNOWN_MACHINE && !atomic_load(&find_object)) {
        atomic_store(&find_object, dlsym(RTLD_DEFAULT, "_dl_find_object"));
    }
    return atomic_load(&find_object) != NULL;
}

/* --- numbers --- */

typedef struct text_t {
    const uint8_t *at, *end;
} text_t;

static uint8_t take_byte(text_t *text) {
    return text->at < text->end ? *text->at++ : 0;
}

static uint64_t take_fixed(text_t *text, size_t size) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value |= (uint64_t)take_byte(text) << 8 * i;
    }
    return value;
}

static uint64_t take_unsigned(text_t *text) {
    uint64_t value = 0;
    uint8_t byte = 0x80;
    for (unsigned shift = 0; byte & 0x80; shift += 7) {
        byte = take_byte(text);
        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
    }
    return value;
}

static int64_t take_signed(text_t *text) {
    uint64_t value = 0;
    unsigned shift = 0;
    uint8_t byte = 0x80;
    for (; byte & 0x80; shift += 7) {
        byte = take_byte(text);
        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
    }
    return (int64_t)(shift < 64 && byte & 0x40 ? value | ~UINT64_C(0) << shift : value);
}

static int32_t at_int32(const uint8_t *at) {
    int32_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

static text_t take_block(text_t *text) {
    uint64_t size = take_unsigned(text);
    uint64_t rest = (uint64_t)(text->end - text->at);
    text_t block = {text->at, text->at + (size < rest ? size : rest)};
    text->at = block.end;
    return block;
}

/* --- rules that the instructions build up --- */

typedef struct state_t {
    umf_record_rule_kind_t kind;
    umf_record_saved_t saved;
    int64_t offset, fp, ra; /* in bytes */
    bool has_ra, is_odd;    /* is_odd: something that a rule cannot say */
} state_t;

typedef struct machine_t {
    text_t text;
    uint64_t code_align;
    int64_t data_align;
    uint64_t at, requested; /* code addresses */
    state_t now, initial, saved[STATES];
    unsigned depth;
} machine_t;

static void set_cfa(machine_t *machine, uint64_t reg, int64_t offset) {
    machine->now.kind = reg == REG_SP   ? UMF_RECORD_RULE_SP
                        : reg == REG_FP ? UMF_RECORD_RULE_FP
                                        : UMF_RECORD_RULE_NONE;
    machine->now.offset = offset;
}

static void set_saved(machine_t *machine, uint64_t reg, int64_t offset) {
    if (reg == REG_FP) {
        machine->now.saved = UMF_RECORD_SAVED_AT_END;
        machine->now.fp = offset;
    } else if (reg == REG_RA) {
        machine->now.has_ra = true;
        machine->now.ra = offset;
    }
}

static void restore(machine_t *machine, uint64_t reg) {
    if (reg == REG_FP) {
        machine->now.saved = machine->initial.saved;
        machine->now.fp = machine->initial.fp;
    } else if (reg == REG_RA) {
        machine->now.has_ra = machine->initial.has_ra;
        machine->now.ra = machine->initial.ra;
    }
}

/* A register has no rule that is supported, if it is one of ours. */
static void set_odd(machine_t *machine, uint64_t reg) {
    machine->now.is_odd |= reg == REG_FP || reg == REG_RA;
}

/* "frame pointer plus offset, and what lies there": of functions that align their stack */
static void set_cfa_expression(machine_t *machine, text_t block) {
    bool is_fp = take_byte(&block) == OP_FP;
    int64_t offset = take_signed(&block);
    bool is_known = is_fp && take_byte(&block) == OP_DEREF && block.at == block.end;
    machine->now.kind = is_known ? UMF_RECORD_RULE_FP_DEREF : UMF_RECORD_RULE_NONE;
    machine->now.offset = offset;
}

static void set_saved_expression(machine_t *machine, uint64_t reg, text_t block) {
    bool is_fp = take_byte(&block) == OP_FP;
    int64_t offset = take_signed(&block);
    if (reg == REG_FP && is_fp && block.at == block.end) {
        machine->now.saved = UMF_RECORD_SAVED_AT_FP;
        machine->now.fp = offset;
    } else {
        set_odd(machine, reg);
    }
}

static void remember(machine_t *machine) {
    if (machine->depth < STATES) {
        machine->saved[machine->depth] = machine->now;
    }
    machine->depth++;
}

static void recall(machine_t *machine) {
    machine->depth -= machine->depth > 0;
    if (machine->depth < STATES) {
        machine->now = machine->saved[machine->depth];
    } else {
        machine->now.is_odd = true;
    }
}

static void undefined(machine_t *machine, uint64_t reg) {
    if (reg == REG_RA) {
        machine->now.kind = UMF_RECORD_RULE_END;
    } else {
        set_odd(machine, reg);
    }
}

/* --- the instructions --- */

/* Those with the upper two bits 0; by their number in DWARF. */
static bool step_extended(machine_t *machine, uint8_t op) {
    text_t *text = &machine->text;
    uint64_t reg = 0;
    if ((op >= 0x05 && op <= 0x09) || op == 0x0c || op == 0x0d || op == 0x2f ||
        (op >= 0x10 && op <= 0x12) || (op >= 0x14 && op <= 0x16)) {
        reg = take_unsigned(text);
    }
    switch (op) {
    case 0x00: /* nop */
    case 0x2d: /* of aarch64: the return address is signed */
        return true;
    case 0x02:
    case 0x03:
    case 0x04: /* advance by 1, 2 or 4 bytes */
        machine->at += take_fixed(text, (size_t)1 << (op - 2)) * machine->code_align;
        return true;
    case 0x05:
        set_saved(machine, reg, (int64_t)take_unsigned(text) * machine->data_align);
        return true;
    case 0x06:
    case 0x08: /* the same value */
        restore(machine, reg);
        return true;
    case 0x07:
        undefined(machine, reg);
        return true;
    case 0x09: /* in another register */
    case 0x14:
    case 0x15: /* the value itself, not where it lies */
        take_unsigned(text);
        set_odd(machine, reg);
        return true;
    case 0x0a:
        remember(machine);
        return true;
    case 0x0b:
        recall(machine);
        return true;
    case 0x0c:
        set_cfa(machine, reg, (int64_t)take_unsigned(text));
        return true;
    case 0x0d:
        set_cfa(machine, reg, machine->now.offset);
        return true;
    case 0x0e:
        machine->now.offset = (int64_t)take_unsigned(text);
        return true;
    case 0x0f:
        set_cfa_expression(machine, take_block(text));
        return true;
    case 0x10:
        set_saved_expression(machine, reg, take_block(text));
        return true;
    case 0x11:
        set_saved(machine, reg, take_signed(text) * machine->data_align);
        return true;
    case 0x12:
        set_cfa(machine, reg, take_signed(text) * machine->data_align);
        return true;
    case 0x13:
        machine->now.offset = take_signed(text) * machine->data_align;
        return true;
    case 0x16:
        take_block(text);
        set_odd(machine, reg);
        return true;
    case 0x2e: /* size of arguments */
        take_unsigned(text);
        return true;
    case 0x2f:
        set_saved(machine, reg, -(int64_t)take_unsigned(text) * machine->data_align);
        return true;
    default:
        return false;
    }
}

/* false: an instruction is not known. */
static bool run(machine_t *machine, text_t text) {
    machine->text = text;
    while (machine->text.at < machine->text.end && machine->at <= machine->requested) {
        uint8_t op = take_byte(&machine->text), low = op & 0x3f;
        if (op >> 6 == 1) {
            machine->at += low * machine->code_align;
        } else if (op >> 6 == 2) {
            set_saved(machine, low, (int64_t)take_unsigned(&machine->text) * machine->data_align);
        } else if (op >> 6 == 3) {
            restore(machine, low);
        } else if (!step_extended(machine, op)) {
            return false;
        }
    }
    return true;
}

/* --- entries --- */

/* The description of the function; NULL: there is none, or the index is of another form. */
static const uint8_t *entry_of(const uint8_t *index, uint64_t address) {
    if (index[0] != 1 || index[2] != 0x03 || index[3] != ENCODED_TABLE) {
        return NULL;
    }
    bool has_short_pointer = (index[1] & 0x0f) == 0x0b || (index[1] & 0x0f) == 0x03;
    const uint8_t *table = index + 12;
    int64_t requested = (int64_t)(address - (uintptr_t)index);
    size_t low = 0, high = has_short_pointer ? (uint32_t)at_int32(index + 8) : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (at_int32(table + 8 * middle) <= requested) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? index + at_int32(table + 8 * (low - 1) + 4) : NULL;
}

/* The fields that the letters behind 'z' announce. false: addresses have another form. */
static bool read_augmentation(const char *letters, text_t *text) {
    bool has_form = false;
    for (letters++; *letters; letters++) {
        uint8_t form = *letters == 'S' || *letters == 'B' ? 0 : take_byte(text);
        if (*letters == 'R') {
            has_form = form == ENCODED_PC_RELATIVE_4;
        } else if (*letters == 'P') {
            bool is_long = (form & 0x07) == 0x04 || (form & 0x07) == 0x00;
            take_fixed(text, is_long ? 8 : (form & 0x07) == 0x02 ? 2 : 4);
        } else if (*letters == 'S') {
            return false; /* a signal handler's frame */
        }
    }
    return has_form;
}

/* What functions have in common. */
static bool run_common(machine_t *machine, const uint8_t *common) {
    uint32_t length = (uint32_t)at_int32(common);
    const char *letters = (const char *)common + 9;
    text_t text = {common + 9 + strlen(letters) + 1, common + 4 + length};
    uint8_t version = common[8];
    if (length == UINT32_MAX || at_int32(common + 4) != 0 || letters[0] != 'z') {
        return false;
    }
    machine->code_align = take_unsigned(&text);
    machine->data_align = take_signed(&text);
    uint64_t ra = version == 1 ? take_byte(&text) : take_unsigned(&text);
    text_t augmentation = take_block(&text);
    return ra == REG_RA && read_augmentation(letters, &augmentation) && run(machine, text);
}

static bool run_entry(machine_t *machine, const uint8_t *entry) {
    uint32_t length = (uint32_t)at_int32(entry);
    uint64_t first = (uintptr_t)entry + 8 + (uint64_t)(int64_t)at_int32(entry + 8);
    uint64_t size = (uint32_t)at_int32(entry + 12);
    text_t text = {entry + 16, entry + 4 + length};
    machine->at = first;
    if (length == UINT32_MAX || machine->requested - first >= size ||
        !run_common(machine, entry + 4 - at_int32(entry + 4))) {
        return false;
    }
    machine->initial = machine->now;
    take_block(&text);
    return run(machine, text);
}

/* --- rules --- */

static umf_record_rule_t rule_of(const state_t *state) {
    int64_t fp = state->saved == UMF_RECORD_SAVED_NOT ? 0 : state->fp;
    umf_record_rule_t rule = {
        .kind = (uint8_t)state->kind,
        .saved = (uint8_t)state->saved,
        .fp = (int8_t)(fp / 8),
        .ra = (int8_t)(state->ra / 8),
        .offset = (int32_t)state->offset,
    };
    bool fits = rule.fp * 8 == fp && rule.ra * 8 == state->ra && rule.offset == state->offset;
    bool is_said = fits && state->has_ra && !state->is_odd && state->kind != UMF_RECORD_RULE_NONE;
    if (!is_said && state->kind != UMF_RECORD_RULE_END) {
        rule.kind = UMF_RECORD_RULE_ODD;
    }
    return rule;
}

static umf_record_rule_t work_out(uint64_t address) {
    int (*find)(void *, found_t *) =
        (int (*)(void *, found_t *))(uintptr_t)atomic_load(&find_object);
    umf_record_rule_t none = {.kind = UMF_RECORD_RULE_NONE}, odd = {.kind = UMF_RECORD_RULE_ODD};
    machine_t machine = {.requested = address - 1}; /* in the call */
    found_t found;
    if (!find || find((void *)(uintptr_t)machine.requested, &found) != 0 || !found.eh_frame) {
        return none;
    }
    const uint8_t *entry = entry_of(found.eh_frame, machine.requested);
    if (!entry) {
        return none;
    }
    return run_entry(&machine, entry) ? rule_of(&machine.now) : odd;
}

/* The entry of the address, or the free one where it belongs. There are free ones. */
static size_t find(umf_record_rules_t *rules, uint64_t address, bool *is_there) {
    size_t at = umf_record_rule_place(address);
    uint64_t there;
    while ((there = atomic_load_explicit(&rules->entries[at].address, memory_order_acquire)) != 0 &&
           there != address) {
        at = (at + 1) % UMF_COUNT_OF(rules->entries);
    }
    *is_there = there == address;
    return at;
}

static void keep_locked(umf_record_rules_t *rules, uint64_t address, umf_record_rule_t rule) {
    uint64_t word;
    bool is_there;
    size_t at = find(rules, address, &is_there);
    if (is_there || rules->count == UMF_COUNT_OF(rules->entries) / 4 * 3) {
        return;
    }
    memcpy(&word, &rule, sizeof(word));
    atomic_store_explicit(&rules->entries[at].rule, word, memory_order_relaxed);
    atomic_store_explicit(&rules->entries[at].address, address, memory_order_release);
    rules->count++;
}

umf_record_rule_t umf_record_rule_slow(umf_record_rules_t *rules, uint64_t address) {
    bool is_there;
    size_t at = find(rules, address, &is_there);
    if (is_there) {
        return umf_record_rule_at(rules, at);
    }
    umf_record_rule_t rule = work_out(address);
    umf_record_spin(&rules->is_locked);
    keep_locked(rules, address, rule);
    umf_record_unspin(&rules->is_locked);
    return rule;
}
