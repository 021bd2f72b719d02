#!/usr/bin/env bash
# Checks the imports of libumf: imports.sh <nm> <libumf.so>
#
# Not memory, because it may be the program's malloc; and not prctl, because whom a process lets at
# its memory (PR_SET_PTRACER) is for the application to say.
set -euo pipefail

forbidden="malloc calloc realloc reallocarray free memalign aligned_alloc posix_memalign valloc
    strdup strndup asprintf vasprintf getline getdelim fopen fdopen opendir scandir prctl"

imported=$("$1" -D --undefined-only -P "$2" | awk '{ sub(/@.*/, "", $1); print $1 }')
[ -n "$imported" ] || { echo "$2 imports nothing"; exit 1; }

status=0
for function in $forbidden; do
    if grep -qxF "$function" <<<"$imported"; then
        echo "libumf calls $function"
        status=1
    fi
done

[ $status -ne 0 ] || echo "check_imports: $(wc -l <<<"$imported") symbols, none of the forbidden"
exit $status
