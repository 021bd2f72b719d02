/* Frees and resizes memory that the C library has allocated for it. */
#include <stdlib.h>
#include <string.h>

int work(void) {
    char *text = strdup("text");
    text = text ? realloc(text, 1000) : NULL;
    int is_right = text && strcmp(text, "text") == 0;
    free(text);
    return is_right;
}
