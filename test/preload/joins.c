/* 100 rounds of ten threads that are joined, and one of 100. The C library frees thread-local
 * memory with the lock of its stacks held, so a free must not create a thread. The process can be
 * looked at all the time. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <unistd.h>

enum { ROUNDS = 100, THREADS = 10, MANY = 100 };

static void *work(void *unused) {
    (void)unused;
    free(calloc(16, 8));
    return NULL;
}

/* Those of the library. */
static int threads_count(void) {
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[320], name[64] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        count += file && fgets(name, sizeof(name), file) && strncmp(name, "umf-attach", 10) == 0;
        if (file) {
            fclose(file);
        }
    }
    closedir(folder);
    return count;
}

/* All of them live before the first is joined. */
static int start_and_join(int count) {
    static pthread_t threads[MANY];
    for (int i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, work, NULL) != 0) {
            return 0;
        }
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    return 1;
}

int main(void) {
    for (int i = 0; threads_count() != 1; i++) { /* it gives itself its name */
        if (i == 10000) {
            fprintf(stderr, "the thread of the attach socket is not there from the start\n");
            return 1;
        }
        usleep(1000);
    }
    for (int round = 0; round <= ROUNDS; round++) {
        if (!start_and_join(round < ROUNDS ? THREADS : MANY)) {
            return 2;
        }
    }
    return threads_count() == 1 ? 0 : 3;
}
