/* Collapsed stacks, and the file format of speedscope: the inputs of flame graph viewers. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "export.h"
#include "folded.h"
#include "json.h"
#include "own.h"

static bool is_written(FILE *out, umf_reader_error_t *error) {
    return (fflush(out) == 0 && !ferror(out)) ||
           reader_fail(error, "the stacks could not be written: %s", strerror(errno));
}

/* --- collapsed -------------------------------------------------------------------------------- */

/* A frame ends at ';', the stack at the last blank, and a line is a stack. */
static void write_name(FILE *out, const char *name) {
    for (; *name; name++) {
        unsigned char byte = (unsigned char)*name;
        fputc(byte == ';' ? ':' : byte < ' ' || byte == 0x7f ? '?' : byte, out);
    }
}

static void write_line(const folded_t *folded, const folded_stack_t *stack, FILE *out) {
    for (size_t i = stack->begin; i < stack->end; i++) {
        if (i > stack->begin) {
            fputc(';', out);
        }
        write_name(out, folded->names[folded->frames[i]]);
    }
    fprintf(out, " %" PRIu64 "\n", stack->weights[FOLDED_PEAK]);
}

bool umf_reader_export_collapsed(umf_reader_t *reader, FILE *out, umf_reader_error_t *error) {
    folded_t folded;
    bool is_done = folded_load(&folded, reader, error);
    for (size_t i = 0; is_done && i < folded.stack_count; i++) {
        if (folded.stacks[i].weights[FOLDED_PEAK] > 0) {
            write_line(&folded, &folded.stacks[i], out);
        }
    }
    is_done = is_done && is_written(out, error);
    folded_end(&folded);
    return is_done;
}

/* --- speedscope ------------------------------------------------------------------------------- */

static void write_frames(const folded_t *folded, FILE *out) {
    for (size_t i = 0; i < folded->name_count; i++) {
        fputs(i ? ",\n{\"name\":" : "\n{\"name\":", out);
        umf_reader_json_string(out, folded->names[i], '\0');
        fputc('}', out);
    }
}

/* Stacks without a weight are left out. */
static void write_samples(const folded_t *folded, size_t weight, FILE *out) {
    const char *before = "\n[";
    for (size_t i = 0; i < folded->stack_count; i++) {
        const folded_stack_t *stack = &folded->stacks[i];
        if (stack->weights[weight] == 0) {
            continue;
        }
        fputs(before, out);
        for (size_t at = stack->begin; at < stack->end; at++) {
            fprintf(out, "%s%" PRIu32, at > stack->begin ? "," : "", folded->frames[at]);
        }
        fputc(']', out);
        before = ",\n[";
    }
}

static uint64_t write_weights(const folded_t *folded, size_t weight, FILE *out) {
    uint64_t sum = 0;
    const char *before = "";
    for (size_t i = 0; i < folded->stack_count; i++) {
        uint64_t one = folded->stacks[i].weights[weight];
        if (one > 0) {
            fprintf(out, "%s%" PRIu64, before, one);
            before = ",";
            sum += one;
        }
    }
    return sum;
}

static void write_profile(const folded_t *folded, size_t weight, FILE *out) {
    fprintf(out, "%s\n{\"type\":\"sampled\",\"name\":\"%s\",\"unit\":\"%s\",\"startValue\":0,",
            weight ? "," : "", folded_titles[weight], weight == FOLDED_ALLOCS ? "none" : "bytes");
    fputs("\"samples\":[", out);
    write_samples(folded, weight, out);
    fputs("],\"weights\":[", out);
    uint64_t sum = write_weights(folded, weight, out);
    fprintf(out, "],\"endValue\":%" PRIu64 "}", sum);
}

bool umf_reader_export_speedscope(umf_reader_t *reader, FILE *out, umf_reader_error_t *error) {
    folded_t folded;
    bool is_done = folded_load(&folded, reader, error);
    if (is_done) {
        fputs("{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"name\":", out);
        umf_reader_json_string(out, umf_reader_info(reader)->name, '\0');
        fputs(",\"exporter\":\"umfctl\",\"activeProfileIndex\":1,\"shared\":{\"frames\":[", out);
        write_frames(&folded, out);
        fputs("]},\"profiles\":[", out);
        for (size_t weight = 0; weight < FOLDED_WEIGHTS; weight++) {
            write_profile(&folded, weight, out);
        }
        fputs("]}\n", out);
    }
    is_done = is_done && is_written(out, error);
    folded_end(&folded);
    return is_done;
}
