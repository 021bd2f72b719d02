"""Tests what umfctl reads from the memory of a process that has no attach socket, and programs that umfctl starts.

view_test.py <umfctl> <pools_sample> <the same, linked statically> <hostile_view> <folder to work in>
"""

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

UMFCTL, SAMPLE, STATIC, HOSTILE, WORK = sys.argv[1:6]
os.makedirs(WORK, exist_ok=True)
for variable in ("NO_COLOR", "UMF_RECORD", "UMF_CONF", "UMF_RECORD_ATTACH"):
    os.environ.pop(variable, None)
os.environ["LC_ALL"] = "C.UTF-8"


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(part) for part in what))


class Program:
    """A process that says that it is ready, and waits for the end of its input."""

    def __init__(self, *words, **variables):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "UMF_RECORD_ATTACH": "no", **variables})
        said = self.process.stdout.readline().split()
        check(said, "it did not start")
        self.is_ready = said[0] == "ready"
        self.pid = int(said[1]) if self.is_ready else 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def run(*words, status=0, **options):
    done = subprocess.run([UMFCTL, *map(str, words)], capture_output=True, text=True, cwd=WORK, timeout=120,
                          stdin=subprocess.DEVNULL, errors="surrogateescape", **options)
    check("Sanitizer" not in done.stderr, done.stderr)
    check(status is None or done.returncode == status, words, "status", done.returncode, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stdout + done.stderr


def rows_of(pid):
    document = json.loads(run("top", pid, "--json"))
    return {row["name"]: row for row in document["objects"] if row["pid"] == pid}


def available_kinds():
    document = json.loads(run("info", "--json"))
    return [name for name, row in document["pools"].items() if row.get("state") == "ok"]


def test_figures():
    kinds = [kind for kind in available_kinds() if kind in ("jemalloc", "scalable")]
    texts = ["proxy over os:name=under_proxy"] + ["%s:name=p_%s over os" % (kind, kind) for kind in
                                                  ["disjoint", "coalescing", *kinds]]
    with Program(SAMPLE, *texts) as sample:
        before = os.listdir("/proc/%d/fd" % sample.pid)
        rows = rows_of(sample.pid)
        small, large = rows["small"], rows["large"]
        check(small["type"] == "disjoint" and small["live_count"] == 100, small)
        check(100000 <= small["live"] <= small["held"] <= 1 << 20, small)
        check(small["cached"] == small["held"] - small["live"], small)
        check(large["type"] == "coalescing" and large["live_count"] == 5 and large["live"] == 5 << 20, large)
        check(large["held"] >= large["live"] and large["peak"] is None, large)
        check({rows["LINUX_VMM"]["number"], rows["OS"]["number"]} >= {large["parent"]}, rows)
        check(small["refusals"] == 0 and rows["OS"]["refusals"] is None, rows)
        check(rows["LINUX_VMM"]["held"] == large["held"] and rows["LINUX_VMM"]["live"] is None, rows)
        check(rows["proxy"]["live_count"] == 51, rows["proxy"])
        check(rows["under_proxy"]["type"] == "os", rows)
        for kind in ["disjoint", "coalescing", *kinds]:
            row = rows["p_" + kind]
            check(row["type"] == kind and row["held"] >= (1 << 20) + 50000, row)
            check(row["refusals"] >= (kind != "jemalloc"), "jemalloc refuses such a size itself", row)
            check(row["live_count"] == 51, row)
            check((1 << 20) + 50000 <= row["live"] <= (1 << 20) + 65536, row)
        # Nothing runs in the process for it.
        check(os.listdir("/proc/%d/task" % sample.pid) == [str(sample.pid)])
        check(os.listdir("/proc/%d/fd" % sample.pid) == before)
        check("umf-attach" not in open("/proc/net/unix").read() or
              not re.search(r"umf-attach-\d+-%d$" % sample.pid, open("/proc/net/unix").read(), re.M))


def test_an_arena():
    """Its span is addresses; what it holds is pages."""
    arena = "coalescing:name=moving,arena=yes,arena_page=64K,arena_size=1G over linux_vmm"
    with Program(SAMPLE, arena) as sample:
        rows = rows_of(sample.pid)
        moving = rows["moving"]
        check(moving["type"] == "coalescing" and moving["live_count"] == 51, moving)
        check((1 << 20) + 50000 <= moving["live"] <= moving["held"] <= (1 << 20) + (256 << 10), moving)
        check(moving["spare"] == moving["stale"] == moving["moved"] == 0, moving)
        check(rows["large"]["spare"] is None and rows["LINUX_VMM"]["spare"] is None, rows)
        text = run("top", sample.pid)
        check(re.search(r"^    pages: 0B? spare, 0B? stale, 0B? moved so far$", text, re.M), text)
        check(max(map(len, text.splitlines())) <= 80, text)
    with Program(SAMPLE, arena, UMF_RECORD_ATTACH="yes") as sample:
        moving = rows_of(sample.pid)["moving"]
        check(moving["spare"] == moving["stale"] == moving["moved"] == 0, "with an attach socket", moving)
        check(re.search(r'^umf_moved_bytes_total\{.*name="moving"\} 0$', run("metrics", sample.pid), re.M))


def test_metrics_of_objects_with_the_same_names():
    with Program(SAMPLE, "disjoint:name=twin over os", "coalescing:name=twin over os") as sample:
        metrics = run("metrics", sample.pid)
        check(re.search(r'^umf_live_allocations\{process="[^"]+",kind="pool",name="twin"\} 102$', metrics, re.M), metrics)
        check(int(re.search(r'^umf_refusals_total\{.*name="twin"\} (\d+)$', metrics, re.M)[1]) >= 2, metrics)
        samples = [line.split("}")[0] for line in metrics.splitlines() if line[0] != "#"]
        check(len(samples) == len(set(samples)), metrics)
        each = run("metrics", sample.pid, "--each")
        check(len(re.findall(r'^umf_live_allocations\{.*name="twin",pid="%d",number="\d+"\} 51$' % sample.pid, each,
                             re.M)) == 2, each)


def test_as_text_and_metrics():
    with Program(SAMPLE) as sample:
        text = run("top", sample.pid)
        check(max(map(len, text.splitlines())) <= 80, text)
        check(re.search(r"^  large coalescing #\d+ +5\.0M ", text, re.M), text)
        check("no attach socket" in text and "UMF_RECORD_ATTACH=yes" in text, text)
        check(str(sample.pid) in run("top"), "not among all processes")
        metrics = run("metrics", sample.pid)
        check(re.search(r'^umf_live_allocations\{process="[^"]+",kind="pool",name="small"\} 100$', metrics, re.M), metrics)
        check(re.search(r'^umf_cached_bytes\{.*name="large"\} \d+$', metrics, re.M), metrics)
        check(re.search(r'^umf_refusals_total\{.*name="small"\} 0$', metrics, re.M), metrics)
        for command in ("snapshot", "record", "leaks"):
            said = run(command, sample.pid, status=1)
            check("does not listen" in said and "umfctl record -- PROGRAM" in said, said)


def check_sample(pid):
    rows = rows_of(pid)
    check(rows["small"]["live_count"] == 100 and rows["large"]["live_count"] == 5, rows)


def test_a_program_that_has_the_library_inside():
    with Program(STATIC) as sample:
        check("libumf" not in open("/proc/%d/maps" % sample.pid).read())
        check_sample(sample.pid)


def test_files_that_are_gone():
    """An update replaces them, also under a program that runs on."""
    with Program(SAMPLE) as sample:
        found = re.search(r"(/\S*/(libumf\.so\S*))$", open("/proc/%d/maps" % sample.pid).read(), re.M)
    if not found:
        print("view_test: skipped: files that are gone; the library is linked statically")
        return
    folder = os.path.join(WORK, "gone")
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    library, program = os.path.join(folder, "libumf.so.1"), os.path.join(folder, "sample")
    shutil.copy(found.group(1), library)
    shutil.copy(SAMPLE, program)
    with Program(program, LD_LIBRARY_PATH=folder) as sample:
        check(library in open("/proc/%d/maps" % sample.pid).read(), "another library was loaded")
        os.unlink(library)
        os.unlink(program)
        check_sample(sample.pid)
        for path in (library, program):
            shutil.copy(HOSTILE, path)
        check_sample(sample.pid)


def test_containers():
    """Other namespaces of processes, files, networks and users."""
    if subprocess.run(["unshare", "-Urpmnf", "true"], capture_output=True).returncode != 0:
        print("view_test: skipped: containers; this system does not allow namespaces")
        return
    with Program("unshare", "-Urpmnf", "--mount-proc", SAMPLE) as sample:
        check(sample.pid == 1, sample.pid)
        children = "/proc/%d/task/%d/children" % (sample.process.pid, sample.process.pid)
        check_sample(int(open(children).read()))


def test_refusals():
    check("does not use libumf" in run("top", os.getpid(), status=1))
    check("there is no process" in run("top", 4000000, status=1))
    if os.getuid() == 0:
        with Program(SAMPLE) as sample:
            done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", UMFCTL, "top", str(sample.pid)],
                                  capture_output=True, text=True, cwd="/", timeout=60)
            check(done.returncode == 1 and "another user" in done.stderr, done.stderr)
        with Program("setpriv", "--reuid=65534", "--clear-groups", HOSTILE, "closed") as closed:
            done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", UMFCTL, "top", str(closed.pid)],
                                  capture_output=True, text=True, cwd="/", timeout=60)
            check(done.returncode == 1 and "the kernel does not let this user" in done.stderr, done.stderr)


def test_lies():
    for lie, said in (("version", "version 77"), ("damaged", "damaged"), ("offsets", "damaged"),
                      ("elsewhere", "damaged"), ("endless", "-"), ("counts", None), ("names", "nameless|\\?"),
                      ("sizes", "liar"), ("addresses", "liar"), ("slabs", "liar"), ("pages", "liar"),
                      ("waiting", "in time")):
        with Program(HOSTILE, lie) as liar:
            if not liar.is_ready:
                print("view_test: skipped: a page that is supplied by the process; userfaultfd is not allowed here")
                continue
            began = time.monotonic()
            text = run("top", liar.pid, status=None)
            check(time.monotonic() - began < 60, lie)
            check(said is None or re.search(said, text), lie, text)
            check(not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\udc80-\udcff]", text), lie, repr(text))
            check(max(map(len, text.splitlines()[:-1]), default=0) <= 80 or text.startswith("umfctl"), text)
    # One that keeps the reader waiting does not block the others.
    with Program(HOSTILE, "waiting") as liar, Program(SAMPLE) as sample:
        if liar.is_ready:
            check(re.search(r"^  large coalescing", run("top"), re.M))
            check(sample.pid > 0)


# --- programs that umfctl starts ---


def names_in(path):
    """How many names of code a recording has in itself."""
    with open(os.path.join(WORK, path), "rb") as file:
        file.seek(136)  # umf_record_header_t::names
        file.seek(struct.unpack("<Q", file.read(8))[0])
        return struct.unpack("<Q", file.read(8))[0]


def test_record_a_program():
    run("record", "-o", "whole.umfrec", "--leaks", "--", SAMPLE)
    text = run("trace", "whole.umfrec")
    check("in an orderly way" in text and "large" in text and "small" in text, text)
    check(os.stat(os.path.join(WORK, "whole.umfrec")).st_mode & 0o777 == 0o600)
    check(names_in("whole.umfrec") > 0)
    said = run("record", "--", "sh", "-c", "exit 7", status=7)
    output = run("record", "--", "sh", "-c", "echo attach=$UMF_RECORD_ATTACH.")
    check("attach=." in output, output)
    check("did not use libumf" in said, said)
    check("cannot be started" in run("record", "--", "/no/such/program", status=127))
    check("a program is missing" in run("record", "--", status=2))
    check("not with a program" in run("record", "--json", "--", "true", status=2))
    check("only top and record" in run("info", "--", "true", status=2))


def test_top_of_a_program():
    shown = subprocess.Popen([UMFCTL, "top", "--interval", "0.05", "--", SAMPLE], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=WORK)
    text = ""
    while not re.search(r"large (coalescing )?#\d+ +5\.0M", text):
        line = shown.stdout.readline()
        check(line, "it ended:", text)
        text += line
    _, said = shown.communicate("end\n", timeout=60)
    check(shown.returncode == 0 and "ready" in said, shown.returncode, said)
    check("no attach socket" not in text, text)


def test_a_signal_that_ends_umfctl_is_for_the_program_too():
    for words in (["record", "-o", "ended.umfrec"], ["top"]):
        shown = subprocess.Popen([UMFCTL, *words, "--", "sh", "-c", "echo $$ >&2; exec sleep 1000"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=WORK)
        pid = int(shown.stderr.readline())
        shown.terminate()
        shown.communicate(timeout=60)
        check(shown.returncode == 128 + signal.SIGTERM, words, shown.returncode)
        check(not os.path.exists("/proc/%d" % pid), "the program goes on")


# --- files ---


def test_files_that_are_not_replaced():
    pipe, link = os.path.join(WORK, "pipe"), os.path.join(WORK, "link")
    for path in (pipe, link):
        if os.path.lexists(path):
            os.unlink(path)
    os.mkfifo(pipe)
    os.symlink("nowhere", link)
    sample = subprocess.Popen([SAMPLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "UMF_RECORD_ATTACH": "yes"})
    sample.stdout.readline()
    for path, said in ((pipe, "no regular file"), (link, "a symbolic link")):
        check(said in run("snapshot", sample.pid, "-o", path, status=1))
    check(os.path.islink(link))
    run("snapshot", sample.pid, "-o", "mine.umfsnap")
    check(os.stat(os.path.join(WORK, "mine.umfsnap")).st_mode & 0o777 == 0o600)
    check(not [name for name in os.listdir(WORK) if name.endswith(".new")], "something is left")
    sample.kill()
    sample.communicate()


def recording_of_modules(path, library, count):
    """A snapshot in which so many modules are one library, by as many spellings of its path."""
    texts, offsets = bytearray(b"\0"), []
    for i in range(count):
        offsets.append(len(texts))
        texts += ("".join("//" if i >> bit & 1 else "/./" for bit in range(10)) + library).encode() + b"\0"
    modules = b"".join(struct.pack("<4Q32s", 0x1000000 * (i + 1), 0x1000000, 0x1000000, offset, b"")
                       for i, offset in enumerate(offsets))
    stacks, live = [0], b""
    for i in range(count):
        live += struct.pack("<4Q", 1, 0x10000 * (i + 1), 64, 1 | 1 << 16 | len(stacks) << 40)
        stacks += [1, 0x1000000 * (i + 1) + 0x900]
    objects = struct.pack("<4I8Q48s", *([0] * 12), b"") + struct.pack("<4I8Q48s", 1, *([0] * 11), b"pool")
    data, sections = bytearray(448), [(0, 0, 0, 0, 0)] * 8
    for kind, content, size in ((0, objects, len(objects) // 2), (1, bytes(texts), 1), (2, modules, 64),
                                (3, struct.pack("<%dQ" % len(stacks), *stacks), 8), (4, live, 32)):
        sections[kind] = (len(data), len(content) // size, len(content) // size, size, 0)
        data += content + b"\0" * (-len(content) % 64)
    head = struct.pack("<8sIIQII2Q2Q7Q4Q", b"UMFREC\r\n", 1, 2, len(data), 7, 1, 0, 0, 0, 0, 1000000000, 0, 0, 0, 1, 0,
                       2**64 - 1, 0, 0, 0, 0) + b"".join(struct.pack("<3Q2I", *section) for section in sections)
    data[:len(head)] = head
    with open(path, "wb") as file:
        file.write(data)


def peak_of_leaks(path):
    child = subprocess.Popen([UMFCTL, "leaks", "--json", path], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    check(status == 0, status)
    return used.ru_maxrss


def test_many_paths_of_one_library():
    """Each was read once more, and kept: the symbols of the library, 512 times."""
    found = re.search(r"(/\S*/libc[.-]\S*)$", open("/proc/self/maps").read(), re.M)
    if not found:
        print("view_test: skipped: many paths of one library; this Python has no libc of its own file")
        return
    path, peaks = os.path.join(WORK, "modules"), []
    for count in (1, 512):
        recording_of_modules(path, found.group(1), count)
        peaks.append(peak_of_leaks(path))
    check(peaks[1] < 2 * peaks[0] + 16384, peaks)


def main():
    scope = "/proc/sys/kernel/yama/ptrace_scope"
    if os.path.exists(scope) and open(scope).read().strip() != "0" and os.getuid() != 0:
        print("view_test: skipped: kernel.yama.ptrace_scope lets only root read another process")
        sys.exit(77)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("view_test:", name, "passed", flush=True)


main()
