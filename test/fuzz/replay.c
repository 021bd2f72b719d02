/* Stands in for libFuzzer: gives a target every file of the folders named on the command line. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/support.h"

#define INPUT_MAX 65536

static int replay_file(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    uint8_t *input = malloc(INPUT_MAX);
    if (!file || !input) {
        perror(path);
        exit(1);
    }
    size_t size = fread(input, 1, INPUT_MAX, file);
    fclose(file);
    printf("%s: %zu bytes\n", name, size);
    fflush(stdout);
    LLVMFuzzerTestOneInput(input, size);
    free(input);
    return 1;
}

static int replay_folder(const char *path) {
    DIR *folder = opendir(path);
    if (!folder) {
        perror(path);
        exit(1);
    }
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') {
            count += replay_file(path, entry->d_name);
        }
    }
    closedir(folder);
    return count;
}

int main(int argc, char **argv) {
    int count = 0;
    for (int i = 1; i < argc; i++) {
        count += replay_folder(argv[i]);
    }
    printf("%d inputs\n", count);
    return count > 0 ? 0 : 1;
}
