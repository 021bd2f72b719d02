#!/usr/bin/env bash
# Runs a real program with the proxy library in front of it and compares what it says with what it
# says without: programs.sh <libumf_proxy.so> <program>
#
# Each program does the same work plain, with the default options, with a threshold, with shared pages
# where it does not fork and go on (docs/man/umf_proxy.7 says why), and while it is recorded. A part of UMF_PROXY that
# means nothing makes every process with the library in it say so in the log.
set -euo pipefail

library=$1 program=$2
marker=this-process-has-it
timeout=${3:-100}

work=$(mktemp -d "${TMPDIR:-/tmp}/umf-preload.XXXXXX")
cleanup() {
    [ ! -e "$work/server" ] || kill "$(cat "$work/server")" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

need() {
    for tool in "$@"; do
        command -v "$tool" >/dev/null ||
            { echo "skipped: $tool is not here (scripts/install-deps.sh installs it)"; exit 77; }
    done
}

# The program itself; the shell around it stays as it is. `options` is unset in the plain run.
run() {
    if [ -z "${options+set}" ]; then
        timeout $timeout "$@"
    else
        UMF_LOG="level:warning;output:file,$work/log" UMF_PROXY="$marker;$options" \
            UMF_RECORD=$record LD_PRELOAD=$library timeout $timeout "$@"
    fi
}

# --- what each program does, in an empty folder; its output must not depend on where and when -----

do_bash() {
    cat >script <<'END'
declare -A count
for word in $(seq 1 2000) $(seq 1 1000); do count[$word]=$((${count[$word]:-0} + 1)); done
twice=0
for word in "${!count[@]}"; do [ "${count[$word]}" = 2 ] && twice=$((twice + 1)); done
echo "twice $twice"
fib() { if [ "$1" -lt 2 ]; then echo "$1"; else echo $(($(fib $(($1 - 1))) + $(fib $(($1 - 2))))); fi; }
echo "fib $(fib 7)"
seq 1 500 | while read -r n; do printf '%05d\n' "$n"; done | sort -r | head -n 3
text=$(printf 'abc%.0s' $(seq 1 5000))
echo "${#text} ${text//b/xx}" | cksum
cat <(echo one) <(echo two)
( sleep 0.01; exit 3 ) & wait $! || echo "child $?"
trap 'echo bye' EXIT
END
    run bash script
}

do_git() {
    export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_AUTHOR_DATE='2020-01-01 00:00:00 +0000'
    export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_COMMITTER_DATE='2020-01-01 00:00:00 +0000'
    run git init -q -b main repository
    cd repository
    for i in 1 2 3 4; do
        seq "$i" 3000 >"file$i"
        run git add .
        run git commit -q -m "commit $i"
    done
    run git checkout -q -b side HEAD~1
    seq 1 100 >other
    run git add other
    run git commit -q -m other
    run git merge -q -m merged main
    run git log --stat --format='%H %s'
    run git gc -q --prune=now
    run git fsck --full 2>/dev/null
    run git blame file4 | cksum
    run git grep -c 77 | cksum
}

do_gcc() {
    cat >a.c <<'END'
#include <stdio.h>
#include <string.h>
static int square(int x) { return x * x; }
int main(void) { char b[32]; snprintf(b, sizeof(b), "%d", square(12)); printf("%s %zu\n", b, strlen(b)); return 0; }
END
    cat >b.cpp <<'END'
#include <iostream>
#include <map>
#include <string>
int main() {
    std::map<std::string, int> m{{"a", 1}, {"b", 2}};
    for (auto &[k, v] : m) std::cout << k << v << "\n";
}
END
    run gcc -O2 -flto a.c -o a
    run g++ -std=c++17 -O1 b.cpp -o b
    ./a && ./b
    cksum <a && cksum <b
}

do_python3() {
    cat >script.py <<'END'
import hashlib, json, subprocess, sys, threading, zlib
results = {}
def work(n):
    d = {str(i): [i] * (i % 50) for i in range(3000)}
    text = json.dumps(d, sort_keys=True).encode()
    results[n] = hashlib.sha256(zlib.decompress(zlib.compress(text * (n + 1)))).hexdigest()
threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
for t in threads: t.start()
for t in threads: t.join()
for n in sorted(results): print(n, results[n])
children = [subprocess.Popen([sys.executable, "-c", f"print(sum(range({n}000)))"],
                             stdout=subprocess.PIPE) for n in range(4)]
print([c.communicate()[0] for c in children])
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(len, ["x" * n for n in range(20)]))
END
    # A launcher in front of the interpreter is a shell script that takes longer than all of this.
    run "$(python3 -c 'import sys; print(sys.executable)')" script.py
}

do_cmake() {
    printf 'int f(void);\nint main(void) { return f(); }\n' >main.c
    printf 'int f(void) { return 7; }\n' >f.c
    cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.10)
project(small C)
add_library(f STATIC f.c)
add_executable(small main.c)
target_link_libraries(small f)
END
    run cmake -S . -B build >/dev/null
    run cmake --build build >/dev/null
    ./build/small || echo "small $?"
    run cmake -E cat CMakeLists.txt
}

do_perl() {
    cat >script.pl <<'END'
use strict;
my %h; $h{$_ % 5003} .= "$_," for 1 .. 100000;
print join(" ", (map { length $h{$_} } (sort { $a <=> $b } keys %h)[0 .. 20])), "\n";
my $text = join " ", map { "word$_" } 1 .. 20000;
my $n = 0; $n++ while $text =~ /(\w+)7\b/g; print "$n\n";
for my $i (1 .. 5) {
    my $pid = fork();
    if (!$pid) { $h{$_} = "child" for 1 .. 1000; exit $i; }
    waitpid $pid, 0; print $? >> 8, "\n";
}
print length(`echo some output`), "\n";
END
    run perl script.pl
}

do_ruby() {
    cat >script.rb <<'END'
words = (1..20_000).map { |i| (i * 7919 % 10_007).to_s }
count = Hash.new(0)
words.each { |w| count[w] += 1 }
puts count.size, count.values.max, words.sort.first(3).join(" ")
text = +""
2_000.times { |i| text << "line #{i}\n" }
puts text.lines.map(&:chomp).select { |l| l =~ /9\z/ }.size, text.gsub("line", "row").sum
puts (1..60).inject(:*)
puts 4.times.map { |t| Thread.new { (1..500).map { |i| "#{t} #{i}" }.join.size } }.sum(&:value)
GC.start
puts Marshal.load(Marshal.dump(count)).size
pid = fork { exit((1..1000).map(&:to_s).join.size % 100) }
Process.wait(pid)
puts $?.exitstatus
END
    run ruby script.rb
}

do_sqlite3() {
    run sqlite3 base.db <<'END'
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c BLOB);
BEGIN;
WITH RECURSIVE n(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM n WHERE x < 30000)
    INSERT INTO t SELECT x, 'text ' || (x * 7919 % 10007), zeroblob(x % 100) FROM n;
COMMIT;
CREATE INDEX i ON t(b);
SELECT count(*), sum(length(c)), min(b), max(b) FROM t;
SELECT b, count(*) FROM t GROUP BY b HAVING count(*) > 2 ORDER BY b LIMIT 5;
DELETE FROM t WHERE a % 3 = 0;
VACUUM;
PRAGMA integrity_check;
SELECT total(a), group_concat(b) FROM (SELECT * FROM t ORDER BY a LIMIT 50);
END
}

do_node() {
    cat >script.js <<'END'
const { Worker, isMainThread, parentPort } = require('worker_threads');
const { execFileSync } = require('child_process');
if (!isMainThread) {
    const all = [];
    for (let i = 0; i < 10000; i++) all.push({ i, text: 'text ' + i, bytes: Buffer.alloc(i % 200) });
    parentPort.postMessage(JSON.stringify(all).length);
} else {
    console.log(require('zlib').deflateSync(Buffer.alloc(1 << 20, 'abc')).length);
    console.log(execFileSync('/bin/echo', ['from a child']).toString().trim());
    let left = 2;
    for (let i = 0; i < 2; i++)
        new Worker(__filename).on('message', (n) => { console.log(n); if (!--left) process.exit(0); });
}
END
    run node script.js
}

do_redis() {
    local socket=$PWD/socket
    # The server is the same file under another name; its own package would start a service.
    ln -s "$(command -v redis-check-rdb)" redis-server
    if [ -z "${options+set}" ]; then
        ./redis-server --port 0 --unixsocket "$socket" --save '' >server.log 2>&1 &
    else
        UMF_LOG="level:warning;output:file,$work/log" UMF_PROXY="$marker;$options" \
            LD_PRELOAD=$library ./redis-server --port 0 --unixsocket "$socket" --save '' \
            >server.log 2>&1 &
    fi
    local server=$!
    echo $server >"$work/server"
    for ((i = 0; i < 1200; i++)); do
        [ "$(redis-cli -s "$socket" ping 2>/dev/null)" != PONG ] || break
        sleep 0.05
    done
    run redis-benchmark -s "$socket" -n 3000 -r 1000 -q -t set,get,lpush,sadd,hset,zadd,lrange_100 \
        >benchmark.log
    grep -c 'requests per second' benchmark.log
    seq 1 5000 | sed 's/.*/SET key:& value-&/' | redis-cli -s "$socket" --pipe >/dev/null
    redis-cli -s "$socket" <<'END'
GET key:4711
STRLEN key:5000
EVAL "local t = {} for i = 1, 10000 do t[i] = tostring(i) end return #table.concat(t)" 0
CONFIG SET maxmemory 100mb
END
    if [[ ${options:-} != *shared* ]]; then # it forks a child that writes the file
        redis-cli -s "$socket" SAVE
        redis-cli -s "$socket" BGREWRITEAOF
    fi >/dev/null
    redis-cli -s "$socket" SHUTDOWN NOSAVE || true
    local status=0
    wait "$server" || status=$?
    rm "$work/server"
    echo "server $status"
}

# --- plain and with the library ---------------------------------------------------------------------

in_empty_folder() {
    rm -rf "$work/run"
    mkdir "$work/run"
    cd "$work/run"
}

failed=0
with() { # <options> [<UMF_RECORD>]
    local record=${2-}
    in_empty_folder
    : >"$work/log"
    local status=0
    (options=$1; "do_$program") >"$work/out" 2>"$work/err" || status=$?
    if [ $status -ne 0 ] || ! diff -u "$work/plain" "$work/out"; then
        echo "$program with UMF_PROXY=\"$1\": exit status $status; its errors:"
        cat "$work/err"
        failed=1
    fi
    if ! grep -q "ignored \"$marker\"" "$work/log"; then
        echo "$program with UMF_PROXY=\"$1\": the library was not in it"
        failed=1
    fi
    if grep -v "ignored \"$marker\"" "$work/log"; then
        echo "$program with UMF_PROXY=\"$1\": the library complained, see above"
        failed=1
    fi
    echo "$program with UMF_PROXY=\"$1\": $(wc -l <"$work/log") processes"
}

case $program in
redis) need redis-check-rdb redis-cli redis-benchmark ;;
gcc) need gcc g++ ;;
*) need "$program" ;;
esac

in_empty_folder
("do_$program") >"$work/plain" 2>"$work/err" ||
    { echo "$program fails without the library, too:"; cat "$work/plain" "$work/err"; exit 1; }

with ""
with "size.threshold=64"
case $program in
gcc | sqlite3 | node) with "page.disposition=shared-fd" ;;
redis) with "page.disposition=shared-shm" ;;
esac

# Every process and every child of fork has a recording of its own.
mkdir "$work/recordings"
with "" "$work/recordings/%p,stacks,size=2M"
files=$(find "$work/recordings" -type f -size -2049k | wc -l)
echo "$program: $files recordings"
[ "$files" -gt 0 ] || { echo "$program: nothing was recorded"; failed=1; }
exit $failed
