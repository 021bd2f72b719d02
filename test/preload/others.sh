#!/usr/bin/env bash
# Programs whose malloc is another one are left alone, and the log has a line that says so:
# others.sh <libumf_proxy.so> <program with a malloc of its own> <the same in C++> <deepbind> <plugin>
# <outer>
set -euo pipefail

library=$1 own=$2 own_new=$3 deepbind=$4 plugin=$5 outer=$6
work=$(mktemp -d "${TMPDIR:-/tmp}/umf-others.XXXXXX")
trap 'rm -rf "$work"' EXIT
failed=0

# <name> <line of the log> <command...>: ends with 0 and writes that line, and no other.
expect() {
    local name=$1 line=$2
    shift 2
    : >"$work/log"
    UMF_LOG="level:warning;output:file,$work/log" LD_PRELOAD=$library "$@" >"$work/out" 2>&1 ||
        { echo "$name: exit status $?: $(cat "$work/out")"; failed=1; }
    if [ "$(wc -l <"$work/log")" -ne 1 ] || ! grep -q "$line" "$work/log"; then
        echo "$name: the log has not one line \"$line\" but: $(cat "$work/log")"
        failed=1
    fi
    echo "$name: done"
}

expect "own malloc" "left alone: it has a malloc of its own" "$own"
grep -qx "some text" "$work/out" || { echo "own malloc: $(cat "$work/out")"; failed=1; }
expect "own malloc, new" "left alone: it has a malloc of its own" "$own_new"
grep -qx "new and delete" "$work/out" || { echo "own malloc, new: $(cat "$work/out")"; failed=1; }
expect RTLD_DEEPBIND "without RTLD_DEEPBIND" "$deepbind" "$plugin" "$outer"

# A program that has a stub for malloc, whose address it takes, is served.
cat >"$work/stub.c" <<'END'
#include <stdlib.h>
int main(void) {
    void *(*volatile make)(size_t) = malloc;
    void (*volatile drop)(void *) = free;
    drop(make(100));
    return 0;
}
END
if gcc -no-pie -fno-pie "$work/stub.c" -o "$work/stub" 2>/dev/null; then
    : >"$work/log"
    UMF_LOG="level:warning;output:file,$work/log" LD_PRELOAD=$library "$work/stub"
    [ ! -s "$work/log" ] || { echo "stub: $(cat "$work/log")"; failed=1; }
fi

# Without memory and without a C++ library, operator new can only end the process.
cat >"$work/new.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
int main(void) {
    void *(*make)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "_Znwm");
    return make(SIZE_MAX / 2) != NULL;
}
END
if command -v gcc >/dev/null; then
    gcc "$work/new.c" -o "$work/new" -ldl
    status=0
    (ulimit -c 0; LD_PRELOAD=$library exec "$work/new") >"$work/out" 2>&1 || status=$?
    [ $status -eq 134 ] && grep -q "operator new: no memory for" "$work/out" ||
        { echo "new: exit status $status: $(cat "$work/out")"; failed=1; }
fi

# With the runtime of the sanitizer as a shared library (gcc) and in the program (clang).
cat >"$work/a.c" <<'END'
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static void *work(void *text) { free(text); return strdup("b"); }
int main(int argc, char **argv) {
    pthread_t thread; void *text, *block = NULL;
    pthread_create(&thread, NULL, work, strdup(argv[0]));
    pthread_join(thread, &text);
    free(text);
    if (posix_memalign(&block, 64, 100) == 0) free(block);
    char *end = malloc(16);
    end[argc > 1 ? 16 : 0] = 1;
    free(end);
    return 0;
}
END
sanitized=0
for compiler in gcc clang; do
    for sanitizer in address:Address thread:Thread leak:Leak memory:Memory; do
        name="$compiler -fsanitize=${sanitizer%:*}"
        $name -w -g "$work/a.c" -o "$work/a" 2>/dev/null || continue
        # A sanitizer that cannot start here, for its addresses or ptrace, proves nothing.
        timeout 60 "$work/a" >/dev/null 2>&1 || continue
        sanitized=$((sanitized + 1))
        # By itself the shared runtime refuses every library in front of it.
        expect "$name" "left alone: it runs under ${sanitizer#*:}Sanitizer" \
            env ASAN_OPTIONS=verify_asan_link_order=0 timeout 60 "$work/a"
        if [ "${sanitizer%:*}" = address ]; then
            ! ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD=$library timeout 60 "$work/a" more \
                >"$work/out" 2>&1 && grep -q heap-buffer-overflow "$work/out" ||
                { echo "$name: the fault was not seen: $(cat "$work/out")"; failed=1; }
        fi
    done
done
echo "$sanitized programs with sanitizers"
exit $failed
