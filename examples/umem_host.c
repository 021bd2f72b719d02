/*
 * libumem from C: contexts for memory of the host and for a file, a connection between the two, and
 * how errors are reported.
 */
#include <stdio.h>
#include <unistd.h>

#include <umem.h>

#define COUNT 8

static void print(const char *what, uintptr_t adr) {
    const int *numbers = (const int *)adr;
    printf("%s:", what);
    for (int i = 0; i < COUNT; i++) {
        printf(" %d", numbers[i]);
    }
    printf("\n");
}

int main(void) {
    char name[64];
    const size_t size = COUNT * sizeof(int);
    umemHost host;
    umemFile file;
    snprintf(name, sizeof(name), "/tmp/umf_example_umem_host_%ld", (long)getpid());
    umemHost_ctor(&host);
    umemFile_ctor(&file, name, "w+b");

    /* Addresses are numbers. Those of host memory are pointers. */
    uintptr_t numbers = umem_calloc(&host, COUNT, sizeof(int));
    for (int i = 0; i < COUNT; i++) {
        ((int *)numbers)[i] = i * i;
    }

    /* The file gets a copy, and what changes afterwards. */
    uintptr_t in_file = umem_connect(&host, numbers, size, &file, 0);
    ((int *)numbers)[0] = 100;
    umem_sync_to(&host, numbers, &file, in_file, size);
    umem_set(&host, numbers, 0, size);
    print("cleared", numbers);
    umem_sync_from(&host, numbers, &file, in_file, size);
    print("from the file", numbers);

    /* A copy of more than there is: the context reports it. */
    umem_copy_to(&file, in_file, &host, numbers, size);
    umem_copy_to_safe(&host, numbers, size, &file, in_file, size / 2, size);
    printf("%s: %s\n", umem_get_status_name(umem_get_status(&file)), umem_get_message(&file));
    umem_clear_status(&file);

    umem_disconnect(&host, numbers, &file, in_file, 0); /* closes the file */
    umem_free(&host, numbers);
    int failed = !umem_is_ok(&host) || !umem_is_ok(&file);
    umem_dtor(&file);
    umem_dtor(&host);
    remove(name);
    return failed;
}
