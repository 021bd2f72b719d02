#!/usr/bin/env bash
# Tries the documented examples of the environment and of creation text:
#
#   settings.sh <umf_docs_try> <page or header>...
#
# UMF_LOG="..." and UMF_CONF="..." anywhere in a page must be accepted without a word of complaint,
# and the text in each ...CreateFromText("...") must create something.
set -euo pipefail

try=$1
shift
cd "$(mktemp -d)"
trap 'rm -rf "$PWD"' EXIT
failed=0
count=0

fail() {
    echo "$*"
    failed=1
}

values_of() { # <variable> <file>...
    grep -hoE "\b$1=\"[^\"]*\"" "${@:2}" | sed -E 's/^[A-Z_]+="(.*)"$/\1/' | grep -v '^\.\.\.$' | sort -u
}

while read -r value; do
    count=$((count + 1))
    said=$(UMF_LOG="$value" "$try" 2>&1) || fail "UMF_LOG=\"$value\" stops the program"
    ! grep -q 'disabled' <<<"$said" || fail "UMF_LOG=\"$value\": $said"
done < <(values_of UMF_LOG "$@")

while read -r value; do
    count=$((count + 1))
    said=$(UMF_CONF="umf.logger.output=stderr;umf.logger.level=2;$value;umf.logger.level=2" "$try" 2>&1) ||
        fail "UMF_CONF=\"$value\" stops the program"
    ! grep -q 'is ignored\|is read' <<<"$said" || fail "UMF_CONF=\"$value\": $said"
done < <(values_of UMF_CONF "$@")

# umfMemoryProviderCreateFromText("...", or umfPoolCreateFromText("...",
while read -r kind value; do
    count=$((count + 1))
    said=$("$try" "$kind" "$value") || fail "$said"
done < <(sed -nE 's/.*umfMemoryProviderCreateFromText\("([^"]*)".*/provider \1/p
    s/.*umfPoolCreateFromText\("([^"]*)".*/pool \1/p' "$@" | sort -u)

# A line of a comment that is such a text alone, in quotes: a pool is "over" a provider.
while read -r value; do
    kind=provider
    [[ $value != *' over '* ]] || kind=pool
    count=$((count + 1))
    said=$("$try" "$kind" "$value") || fail "$said"
done < <(sed -nE 's/^ \*     "(.*)"$/\1/p' "$@" | sed 's/\\"/"/g' | sort -u)

[ $count -gt 0 ] || fail "nothing found to try: did the form of the documentation change?"
[ $failed -ne 0 ] || echo "docs.settings: $count settings and texts are accepted"
exit $failed
