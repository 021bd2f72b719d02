/*
 * Data moves between any two memories with one call.
 *
 * The program makes a table in memory of the system and in memory of a GPU, if there is one, and
 * never names their kinds: the library finds them. It copies a column out of the table, too, and
 * reads the cause of a refused copy.
 */
#include <stdio.h>

#include <umf.h>
#include <umf/copy.h>
#include <umf/text.h>

enum { ROWS = 1000, COLUMNS = 16 };

static const char *name_of(umf_place_kind_t kind) {
    static const char *const names[] = {"unknown", "host", "pinned", "device", "shared"};
    return names[kind];
}

/* Fills a table anywhere, copies it to the program's memory, and takes one column out of it. */
static umf_result_t use_table(double *table, double *copy, double column[ROWS]) {
    double values[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) {
        values[i] = i;
    }
    umf_result_t result =
        umfFill(table, values, sizeof(values), ROWS * sizeof(values), NULL); /* each row alike */
    if (result == UMF_RESULT_SUCCESS) {
        result = umfCopy(copy, table, ROWS * sizeof(values), NULL);
    }
    if (result == UMF_RESULT_SUCCESS) {
        umf_copy_rows_t rows = UMF_COPY_ROWS_INIT;
        rows.to = column;
        rows.to_pitch = sizeof(double);
        rows.from = &table[7];
        rows.from_pitch = sizeof(values);
        rows.size = sizeof(double);
        rows.count = ROWS;
        result = umfCopyRows(&rows, NULL);
    }
    return result;
}

static int run(const char *text) {
    static double copy[ROWS * COLUMNS], column[ROWS];
    umf_memory_pool_handle_t pool;
    umf_place_t place = UMF_PLACE_INIT;
    if (umfPoolCreateFromText(text, &pool) != UMF_RESULT_SUCCESS) {
        printf("%-28s not here\n", text);
        return 0;
    }
    double *table = umfPoolMalloc(pool, sizeof(copy));
    umf_result_t result = table ? use_table(table, copy, column) : UMF_RESULT_ERROR_UNKNOWN;
    umfPlaceOf(table, &place);
    printf("%-28s %s memory, device %d: copy[5] = %g, column[5] = %g\n", text, name_of(place.kind),
           place.device, copy[5], column[5]);

    /* What leaves its allocation is refused before a byte is written. */
    umf_result_t refused = umfCopy(copy, table, place.size - place.offset + 1, NULL);
    umfFree(table);
    umfPoolDestroy(pool);
    return result == UMF_RESULT_SUCCESS && refused == UMF_RESULT_ERROR_INVALID_ARGUMENT &&
                   copy[5] == 5 && column[5] == 7
               ? 0
               : 1;
}

int main(void) {
    return run("proxy over os") || run("proxy over cuda:memory_type=device") ||
           run("proxy over level_zero:memory_type=device");
}
