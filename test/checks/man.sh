#!/usr/bin/env bash
# Checks that the manual pages are formatted without a warning: man.sh <project root>
set -euo pipefail

if ! command -v groff >/dev/null || ! groff -man -Tutf8 -z /dev/null 2>/dev/null; then
    echo "check_man: skipped, groff with its man macros is not here (scripts/install-deps.sh installs it)"
    exit 77
fi

failed=0
for page in "$1"/docs/man/*.[1-9]; do
    warnings=$(groff -ww -man -Tutf8 -z "$page" 2>&1)
    if [ -n "$warnings" ]; then
        echo "$warnings"
        failed=1
    fi
done
[ $failed -ne 0 ] || echo "check_man: $(ls "$1"/docs/man | wc -l) pages are clean"
exit $failed
