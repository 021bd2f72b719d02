/* Pieces come from servers into the draft: several gets of each server at a time. */
#include <string.h>

#include "base/last_error.h"
#include "base/log.h"
#include "ext/fetch/own.h"
#include "system/checksum.h"

#define NAP_MS 2 /* between looks at several servers */

static const umf_fetch_entry_t *entry_of(const umf_fetch_transfer_t *transfer, size_t i) {
    return &transfer->table->entries[transfer->pieces[i].entry];
}

/* Where a piece begins, in the run of a table. */
static uint64_t offset_of(const umf_fetch_transfer_t *transfer, const umf_fetch_table_t *table,
                          size_t i) {
    const umf_fetch_piece_t *piece = &transfer->pieces[i];
    return table->entries[piece->entry].offset + piece->piece * UMF_FETCH_PIECE;
}

static size_t size_of(const umf_fetch_transfer_t *transfer, size_t i) {
    return umf_fetch_piece_size(entry_of(transfer, i), transfer->pieces[i].piece);
}

static void set_states(umf_fetch_transfer_t *transfer, size_t first, size_t last,
                       umf_fetch_state_t state) {
    memset(transfer->states + first, (int)state, last - first);
    if (state == UMF_FETCH_MISSING && first < transfer->next) {
        transfer->next = first;
    }
}

/* --- one get ---------------------------------------------------------------------------------- */

/* Pieces that lie behind each other in the same way here and at the server. */
typedef struct stretch_t {
    size_t first, last;
    uint32_t run;        /* of the draft */
    uint64_t begin, end; /* in it */
    uint32_t source_run;
    uint64_t source_begin;
} stretch_t;

static bool stretch_begin(umf_fetch_transfer_t *transfer, const umf_fetch_source_t *source,
                          stretch_t *stretch) {
    while (transfer->next < transfer->count &&
           transfer->states[transfer->next] != UMF_FETCH_MISSING) {
        transfer->next++;
    }
    size_t i = transfer->next;
    if (i == transfer->count) {
        return false;
    }
    uint64_t begin = offset_of(transfer, transfer->table, i);
    *stretch = (stretch_t){.first = i,
                           .last = i + 1,
                           .run = entry_of(transfer, i)->run,
                           .begin = begin,
                           .end = begin + size_of(transfer, i),
                           .source_run = source->table.entries[transfer->pieces[i].entry].run,
                           .source_begin = offset_of(transfer, &source->table, i)};
    return true;
}

/* Bytes between pieces are not compared, so an entry must not have them: its content may be here.
 */
static bool stretch_add(const umf_fetch_transfer_t *transfer, const umf_fetch_source_t *source,
                        stretch_t *stretch) {
    size_t i = stretch->last;
    if (i == transfer->count || transfer->states[i] != UMF_FETCH_MISSING ||
        entry_of(transfer, i)->run != stretch->run ||
        source->table.entries[transfer->pieces[i].entry].run != stretch->source_run) {
        return false;
    }
    uint64_t begin = offset_of(transfer, transfer->table, i), end = begin + size_of(transfer, i);
    uint64_t source_begin = offset_of(transfer, &source->table, i);
    if (begin < stretch->begin || source_begin < stretch->source_begin ||
        begin - stretch->begin != source_begin - stretch->source_begin ||
        (begin > stretch->end && begin - stretch->end > transfer->pieces[i].gap) ||
        end - stretch->begin > transfer->flight_max) {
        return false;
    }
    stretch->end = end > stretch->end ? end : stretch->end;
    stretch->last++;
    return true;
}

/* --- the end of a get ------------------------------------------------------------------------- */

static bool pieces_check(umf_fetch_transfer_t *transfer, const umf_fetch_flight_t *flight) {
    for (size_t i = flight->first; i < flight->last; i++) {
        const umf_fetch_entry_t *entry = entry_of(transfer, i);
        const char *at = transfer->blocks[entry->run] + offset_of(transfer, transfer->table, i);
        if (umf_sum(at, size_of(transfer, i)) !=
            transfer->table->digests[entry->digest + transfer->pieces[i].piece]) {
            transfer->result =
                UMF_FAIL(UMF_REASON_BROKEN, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                         "a server sends other content of entry %s than its table says",
                         umf_fetch_key(transfer->table, transfer->pieces[i].entry));
            return false;
        }
    }
    return true;
}

static umf_fetch_flight_t *oldest(umf_fetch_source_t *source) {
    return &source->flights[source->begun % UMF_FETCH_FLIGHTS];
}

/* Nothing of it is in transfer afterwards. */
static void source_drain(umf_fetch_transfer_t *transfer, umf_fetch_source_t *source) {
    for (unsigned i = 0; i < source->count; i++) {
        umfRemoteCancel(source->flights[(source->begun + i) % UMF_FETCH_FLIGHTS].op);
    }
    for (; source->count; source->begun++, source->count--) {
        umf_fetch_flight_t *flight = oldest(source);
        umfRemoteWait(flight->op, UINT64_MAX);
        set_states(transfer, flight->first, flight->last, UMF_FETCH_MISSING);
    }
}

/* After a get or an open has failed. It is opened again, once until it has given a piece: the
 * connection may have been lost, or its ranges have changed. */
static void source_failed(umf_fetch_transfer_t *transfer, umf_fetch_source_t *source,
                          umf_result_t result) {
    umf_reason_t reason = umfLastReason();
    bool again = !source->is_tried && (reason == UMF_REASON_GONE || reason == UMF_REASON_DEADLINE ||
                                       reason == UMF_REASON_STALE);
    transfer->result = result;
    source_drain(transfer, source);
    umf_fetch_source_close(source);
    if (again) {
        source->is_tried = true;
        transfer->result = umf_fetch_source_open(source);
        if (transfer->result == UMF_RESULT_SUCCESS &&
            umf_fetch_table_equals(transfer->table, &source->table)) {
            UMF_LOG_WARN("a server was opened again: %zu of %zu pieces are missing",
                         transfer->missing, transfer->count);
            return;
        }
        reason = umfLastReason();
        if (transfer->result == UMF_RESULT_SUCCESS) {
            umf_fetch_source_close(source);
            source->is_different = true;
        }
    }
    source->is_different = source->is_different || reason == UMF_REASON_STALE;
    if (source->is_different) {
        transfer->result = UMF_FAIL(UMF_REASON_STALE, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                                    "a server has another generation than at the beginning");
    } else {
        umf_last_reason_set(reason);
    }
    source->is_out = true;
}

/* --- a server --------------------------------------------------------------------------------- */

static void source_fill(umf_fetch_transfer_t *transfer, umf_fetch_source_t *source) {
    stretch_t stretch;
    while (!source->is_out && source->count < transfer->flights &&
           stretch_begin(transfer, source, &stretch)) {
        while (stretch_add(transfer, source, &stretch)) {
        }
        umf_remote_memory_handle_t run;
        umf_remote_op_handle_t op;
        umf_result_t result = umf_fetch_source_run(source, stretch.source_run, &run);
        if (result == UMF_RESULT_SUCCESS) {
            result = umfRemoteGet(run, (size_t)stretch.source_begin,
                                  transfer->blocks[stretch.run] + stretch.begin,
                                  (size_t)(stretch.end - stretch.begin), &op);
        }
        if (result != UMF_RESULT_SUCCESS) {
            source_failed(transfer, source, result);
            return;
        }
        source->flights[(source->begun + source->count++) % UMF_FETCH_FLIGHTS] =
            (umf_fetch_flight_t){.op = op, .first = stretch.first, .last = stretch.last};
        set_states(transfer, stretch.first, stretch.last, UMF_FETCH_FLYING);
    }
}

/* false: its oldest get is not done in this time. */
static bool source_take(umf_fetch_transfer_t *transfer, umf_fetch_source_t *source,
                        uint64_t timeout_ms) {
    umf_fetch_flight_t flight = *oldest(source);
    umf_result_t result = umfRemoteWait(flight.op, timeout_ms);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        return false;
    }
    source->begun++;
    source->count--;
    if (result == UMF_RESULT_SUCCESS && pieces_check(transfer, &flight)) {
        set_states(transfer, flight.first, flight.last, UMF_FETCH_HERE);
        for (size_t i = flight.first; i < flight.last; i++) {
            transfer->progress->done += size_of(transfer, i);
        }
        transfer->missing -= flight.last - flight.first;
        source->is_tried = false;
        return true;
    }
    set_states(transfer, flight.first, flight.last, UMF_FETCH_MISSING);
    source_failed(transfer, source, result ? result : transfer->result);
    return true;
}

static umf_result_t transfer_stop(umf_fetch_transfer_t *transfer) {
    for (unsigned i = 0; i < transfer->source_count; i++) {
        source_drain(transfer, &transfer->sources[i]);
    }
    return UMF_RESULT_ERROR_USER_SPECIFIC;
}

umf_result_t umf_fetch_transfer(umf_fetch_transfer_t *transfer) {
    while (transfer->missing) {
        if (!umf_fetch_report(transfer->progress, false)) {
            return transfer_stop(transfer);
        }
        umf_fetch_source_t *busy = NULL;
        unsigned busy_count = 0;
        bool has_taken = false;
        for (unsigned i = 0; i < transfer->source_count; i++) {
            umf_fetch_source_t *source = &transfer->sources[i];
            source_fill(transfer, source);
            while (source->count && source_take(transfer, source, 0)) {
                has_taken = true;
            }
            busy = source->count ? source : busy;
            busy_count += source->count > 0;
        }
        if (busy && !has_taken) {
            source_take(transfer, busy, busy_count == 1 ? UMF_FETCH_REPORT_MS : NAP_MS);
        } else if (!busy && !has_taken) {
            bool is_over = true; /* a server may have been opened again just now */
            for (unsigned i = 0; i < transfer->source_count; i++) {
                is_over = is_over && transfer->sources[i].is_out;
            }
            if (is_over) {
                return transfer->result;
            }
        }
    }
    return umf_fetch_report(transfer->progress, true) ? UMF_RESULT_SUCCESS
                                                      : UMF_RESULT_ERROR_USER_SPECIFIC;
}
