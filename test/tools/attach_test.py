"""Tests what umfctl does with a process: top, metrics, snapshot, record, leaks.

attach_test.py <umfctl> <pools_sample> <folder to work in>

The live screen runs in a pseudo terminal; a small emulation of it (Screen) has the expected content.
"""

import fcntl
import json
import os
import pty
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

UMFCTL, SAMPLE, WORK = sys.argv[1:4]
os.makedirs(WORK, exist_ok=True)
for variable in ("NO_COLOR", "UMF_RECORD", "UMF_CONF"):
    os.environ.pop(variable, None)
# The machine of the test may have a filter of system calls, under which the attach socket stays closed.
os.environ["UMF_RECORD_ATTACH"] = "yes"


def note(text):
    print("attach_test:", text, flush=True)


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(part) for part in what))


class Sample:
    """A process with two pools, and one of each text."""

    def __init__(self, *pools, **environment):
        self.process = subprocess.Popen([SAMPLE, *pools], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **environment})
        word, number = self.process.stdout.readline().split()
        check(word == "ready", word)
        self.pid = int(number)

    def say(self, word, answer):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        check(self.process.stdout.readline() == answer + "\n")

    def grow(self):
        self.say("grow", "grown")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def run(*words, status=0):
    done = subprocess.run([UMFCTL, *map(str, words)], capture_output=True, text=True, cwd=WORK, timeout=120,
                          stdin=subprocess.DEVNULL)
    check(done.returncode == status, words, "status", done.returncode, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


# --- without a terminal ---


def test_top_as_text(sample):
    text = run("top", sample.pid)
    check(max(map(len, text.splitlines())) <= 80, "wider than 80 columns")
    check("\033" not in text, "colours without a terminal")
    check(re.search(r"^  small disjoint #\d+ +\d", text, re.M), text)
    check(re.search(r"^  large coalescing #\d+ +5\.0M ", text, re.M), text)
    check(text.index("large") < text.index("small"), "not sorted by held bytes")
    check(text.count("POOL OR PROVIDER") == 1)
    check(run("top", sample.pid, "-n", 2, "--interval", 0.1).count("POOL OR PROVIDER") == 2)
    check(str(sample.pid) in run("top"), "not among all processes")


def test_json(sample):
    document = json.loads(run("top", sample.pid, "--json"))
    rows = [row for row in document["objects"] if row["pid"] == sample.pid]
    small = next(row for row in rows if row["name"] == "small")
    large = next(row for row in rows if row["name"] == "large")
    check(small["live_count"] == 100 and small["live"] >= 100000, small)
    check(large["live"] == 5 << 20 and large["held"] >= large["live"], large)
    check(small["type"] == "disjoint" and small["refusals"] == 0, "what the view has", small)
    parents = {row["number"]: row for row in rows}
    check(parents[large["parent"]]["kind"] == "provider", rows)
    check(document["objects"] == json.loads(run("metrics", sample.pid, "--json"))["objects"])
    for command in ("snapshot", "record"):
        options = ["--seconds", 0.1] if command == "record" else []
        document = json.loads(run(command, sample.pid, "-o", "x", "--json", *options))
        check(document["file"]["process"]["value"] == sample.pid, document)


def test_metrics(sample):
    text = run("metrics", sample.pid)
    check(re.search(r'^umf_live_allocations\{process="[^"]*",kind="pool",name="small"\} 100$', text, re.M), text)
    each = run("metrics", sample.pid, "--each")
    check(re.search(r'^umf_live_allocations\{process="[^"]*",kind="pool",name="small",pid="%d",number="\d+"\} 100$'
                    % sample.pid, each, re.M), each)
    check(text.endswith("\n# EOF\n"), text)
    python = python_with("prometheus_client")
    if not python:
        note("skipped: Prometheus' own parser; python3-prometheus-client is not installed")
        return
    parse = subprocess.run([python, "-c", PARSE_METRICS], input=text, stdout=subprocess.PIPE, text=True, check=True)
    families = json.loads(parse.stdout)
    check(families["umf_live_bytes"]["type"] == "gauge", families)
    check({"large": 5 << 20}.items() <= families["umf_live_bytes"]["values"].items(), families)
    check(families["umf_refusals"]["type"] == "counter", families)


# Prometheus' own parser of OpenMetrics, which accepts nothing else.
PARSE_METRICS = """
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
print(json.dumps({family.name: {"type": family.type,
                                "values": {one.labels["name"]: one.value for one in family.samples}}
                  for family in parse(sys.stdin.read())}))
"""


def python_with(module):
    """A Python that has the module: this one, or that of the system, where packages go."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run([python, "-c", "import " + module],
                                                     stderr=subprocess.DEVNULL).returncode == 0:
            return python
    return None


def test_files(sample):
    run("snapshot", sample.pid, "-o", "one.umfsnap")
    check(open(os.path.join(WORK, "one.umfsnap"), "rb").read(8) == b"UMFREC\r\n")
    run("diff", "one.umfsnap", "one.umfsnap")
    recorder = record(sample, "-o", "one.umfrec", "--leaks")
    sample.grow()
    recorder.send_signal(signal.SIGINT)
    recorder.communicate(timeout=60)
    check(recorder.returncode == 0)
    document = json.loads(run("leaks", "one.umfrec", "--json"))
    with open(os.path.join(WORK, "one.umfrec"), "rb") as file:
        file.seek(136)  # umf_record_header_t::names
        file.seek(struct.unpack("<Q", file.read(8))[0])
        check(struct.unpack("<Q", file.read(8))[0] > 0, "no names of code are in the file")
    check("10" in json.dumps(document) and "large" in json.dumps(document), document)
    check(os.listdir(WORK) and not [name for name in os.listdir(WORK) if name.endswith(".new")], "something is left")


def record(sample, *words):
    """A umfctl that records the process already."""
    recorder = subprocess.Popen([UMFCTL, "record", str(sample.pid), *words], cwd=WORK, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
    said = recorder.stderr.readline()
    check("is being recorded" in said, said)
    return recorder


def test_memory_from_before_a_recording(sample):
    """It begins with what lives already, whose frees are known then."""
    recorder = record(sample, "-o", "older.umfrec")
    sample.grow()
    sample.say("drop", "dropped")
    recorder.send_signal(signal.SIGINT)
    check(recorder.communicate(timeout=60) and recorder.returncode == 0)
    text = run("trace", "older.umfrec")
    check(re.search(r"^ +small #\d+ +100 KiB +100 KiB +128 KiB +100 +0 +0$", text, re.M), text)
    check(re.search(r"^ +large #\d+ +15 MiB +14 MiB +16 MiB +14 +10 +1$", text, re.M), text)
    check(re.search(r"^ +threads +1$", text, re.M), text)
    check("before the recording" not in text, text)
    events = run("trace", "--events", "older.umfrec").splitlines()
    check(len([line for line in events if " lived before " in line]) == 105, events)
    check(len([line for line in events if " held before " in line]) >= 4, events)
    text = run("leaks", "older.umfrec")
    check(re.search(r"^ +allocations +10$", text, re.M), text)
    part = run("trace", "older.umfrec", "--from", "0.000001")
    check(re.search(r"^ +small #\d+ +0 bytes +0 bytes +- +0 +0 +0$", part, re.M), part)


def test_leaks_of_a_process():
    with Sample(UMF_RECORD="leaks") as sample:
        text = run("leaks", sample.pid)
        check("small" in text and "large" in text, text)
        run("snapshot", sample.pid, "-o", "leaks.umfsnap")
        text = run("leaks", "leaks.umfsnap")
        check("small" in text and "large" in text and "100 allocations" in text, text)


def test_a_recording_outlives_its_process():
    with Sample() as sample:
        recorder = record(sample, "-o", "dead.umfrec")
        sample.grow()
        sample.process.kill()
        _, said = recorder.communicate(timeout=60)
    check(recorder.returncode == 0 and "are kept" in said, recorder.returncode, said)
    check("large" in run("trace", "dead.umfrec"))


def test_a_killed_recorder_stops_the_recording(sample):
    recorder = record(sample)
    check("running already" in run("record", sample.pid, status=1))
    recorder.kill()
    recorder.communicate()
    for _ in range(500):
        done = subprocess.run([UMFCTL, "record", str(sample.pid), "-o", "next", "--seconds", "0.001"], cwd=WORK,
                              capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            return
    raise AssertionError("it goes on: " + done.stderr)


def test_refusals():
    check("there is no process 4000000" in run("top", 4000000, status=1))
    check("is not the number of a process" in run("top", "abc", status=2))
    check("is not the number of a process" in run("snapshot", "abc", status=1))
    check("does not use libumf" in run("snapshot", os.getpid(), status=1))
    with Sample(UMF_RECORD_ATTACH="no") as sample:
        said = run("snapshot", sample.pid, status=1)
        check("does not listen" in said or "does not use libumf" in said, said)
    with Sample() as sample:
        check("cannot be written" in run("snapshot", sample.pid, "-o", "no/where", status=1))
        # The other process's library gives the reason.
        said = run("record", sample.pid, "--size", "4K", status=1)
        check(re.search("could not be started: .*4096", said), said)
        if os.getuid() == 0:
            done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", UMFCTL, "snapshot", str(sample.pid)],
                                  capture_output=True, text=True, cwd="/", timeout=60)
            check(done.returncode == 1 and "another user" in done.stderr, done.stderr)
        os.kill(sample.pid, signal.SIGKILL)
        sample.process.wait()
        check("there is no process" in run("top", sample.pid, status=1))


# --- a process that lies ---


def attach_socket(pid):
    """A socket under the name of this process's attach socket."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind("\0umf-attach-%d-%d" % (os.stat("/proc/self/ns/pid").st_ino, pid))
    made.listen(8)
    return made


def accepted(listener, pid):
    """The connection of that process. Any umfctl without a process named connects to each attach socket on the
    machine, so one that runs beside this test is closed and passed over."""
    while True:
        connection, _ = listener.accept()
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", peer)[0] == pid:
            return connection
        connection.close()


def answer(status=0, kind=2, text=b"", magic=0x41464D55, version=2):
    return struct.pack("<IIII240s", magic, version, status, kind, text)


def asked_once(listener, reply, descriptors=()):
    """What umfctl says to that answer."""
    asking = subprocess.Popen([UMFCTL, "snapshot", str(os.getpid()), "-o", "lies"], cwd=WORK, stderr=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    connection = accepted(listener, asking.pid)
    connection.recv(4096)
    if reply is not None:
        socket.send_fds(connection, [reply], list(descriptors))
    connection.close()
    _, said = asking.communicate(timeout=60)
    check(asking.returncode in (0, 1) and "Sanitizer" not in said, asking.returncode, said)
    return asking.returncode, said


def test_answers_that_are_none():
    listener = attach_socket(os.getpid())
    for reply in (b"x", b"y" * 255, b"z" * 4096, answer(magic=1), answer(version=1), answer(status=99)):
        status, said = asked_once(listener, reply)
        check(status == 1 and "umfctl: process" in said, reply[:20], said)
    check("has closed the connection" in asked_once(listener, None)[1])
    check("this is another user" in asked_once(listener, answer(status=1))[1])
    said = asked_once(listener, answer(status=4, text=b"\x1b[31m" + b"A" * 235))[1]
    check("\x1b" not in said and "AAAA" in said, "control characters reach the terminal")
    check("without a file" in asked_once(listener, answer())[1])
    listener.close()


def test_hostile_texts():
    """The name of a process, those of its pools, and messages may be in the wrong hands."""
    hostile = "\x1b]0;owned\x07\x9b31m\u202e\u2066".encode()
    listener = attach_socket(os.getpid())
    said = asked_once(listener, answer(status=4, text=hostile + b"AAAA"))[1]
    check("AAAA" in said and not CONTROLS.search(said), repr(said))
    with Sample() as sample:
        run("snapshot", sample.pid, "-o", "names.umfsnap")
    file = os.path.join(WORK, "names.umfsnap")
    with open(file, "rb") as whole:
        content = whole.read().replace(b"large".ljust(30, b"\0"), hostile.ljust(30, b"\0"))
    with open(file, "wb") as changed:
        changed.write(content)
    own_name = open("/proc/self/comm").read().strip()
    with open("/proc/self/comm", "wb") as comm:
        comm.write(b"\x1b[7m\xc2\x9bred")
    for words in (["top", os.getpid()], ["metrics", os.getpid()]):
        asking = subprocess.Popen([UMFCTL, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env={**os.environ, "LC_ALL": "C.UTF-8"})
        connection = accepted(listener, asking.pid)
        connection.recv(4096)
        with open(file, "rb") as given:
            socket.send_fds(connection, [answer(kind=1)], [given.fileno()])
        out, said = asking.communicate(timeout=60)
        connection.close()
        text = (out + said).decode(errors="surrogateescape")
        check(asking.returncode == 0 and "red" in text and "owned" in text, text)
        check(not CONTROLS.search(text), words, repr(text))
    with open("/proc/self/comm", "w") as comm:
        comm.write(own_name)
    said = run("trace", "no\x1b[31m\u202e", status=1)
    check(not CONTROLS.search(said), repr(said))
    listener.close()


CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\udc80-\udcff]")


def silent_processes(count):
    """Processes that have the name of an attach socket, and never answer."""
    code = ("import os, socket, sys, time\n"
            "made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
            "made.bind('\\0umf-attach-%d-%d' % (os.stat('/proc/self/ns/pid').st_ino, os.getpid()))\n"
            "made.listen(8)\nprint('ready', flush=True)\nsys.stdin.read()\n")
    made = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)]
    for one in made:
        check(one.stdout.readline() == "ready\n")
    return made


def test_processes_that_do_not_answer(sample):
    """They do not block the others: each would have cost fifteen seconds."""
    silent = silent_processes(4)
    with Sample(UMF_RECORD_ATTACH="no") as unprepared:
        for command in (["top", "-n", 1], ["metrics", "--each"]):
            began = time.monotonic()
            text = run(*command)
            check(time.monotonic() - began < 55, command, time.monotonic() - began)
            check(str(sample.pid) in text and str(unprepared.pid) in text, text)
    for one in silent:
        one.kill()
        one.communicate()


def test_files_that_are_none():
    """What top shows of snapshots that are damaged."""
    listener = attach_socket(os.getpid())
    with open(os.path.join(WORK, "whole.umfsnap"), "wb") as file, Sample() as sample:
        run("snapshot", sample.pid, "-o", file.name)
        whole = open(file.name, "rb").read()
    damaged = random.Random(25)
    for _ in range(30):
        lies = bytearray(whole[:damaged.randrange(len(whole))] if damaged.random() < 0.5 else whole)
        for _ in range(damaged.randrange(8)):
            if lies:
                lies[damaged.randrange(min(len(lies), 600))] = damaged.randrange(256)
        path = os.path.join(WORK, "damaged")
        with open(path, "wb") as file:
            file.write(lies)
        asking = subprocess.Popen([UMFCTL, "top", str(os.getpid())], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True)
        connection = accepted(listener, asking.pid)
        connection.recv(4096)
        with open(path, "rb") as file:
            socket.send_fds(connection, [answer(kind=1)], [file.fileno()])
        out, said = asking.communicate(timeout=60)
        connection.close()
        check(asking.returncode in (0, 1) and "Sanitizer" not in said, asking.returncode, said)
        check(max(map(len, out.splitlines()), default=0) <= 80, out)
    for descriptor in ("/dev/null", "/dev/zero", "/"):
        opened = os.open(descriptor, os.O_RDONLY)
        check("without a file" in asked_once(listener, answer(), [opened])[1], descriptor)
        os.close(opened)
    listener.close()


# --- on a terminal ---


class Screen:
    """A terminal of so many rows and columns: the content of an xterm after the text was written to it."""

    def __init__(self, words, rows=24, columns=80):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execv(UMFCTL, [UMFCTL, *map(str, words)])
        self.resize(rows, columns)
        self.written = ""

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = self.top = 0
        self.bottom = rows - 1
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cells)

    def send(self, keys):
        os.write(self.fd, keys.encode())

    def read(self, seconds):
        """Reads the output of that time. False: the program has ended."""
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return True
        try:
            piece = os.read(self.fd, 65536).decode(errors="replace")
        except OSError:
            return False
        self.written += piece
        self.show(piece)
        return piece != ""

    def wait_for(self, pattern):
        end = time.monotonic() + 60
        while not re.search(pattern, self.text(), re.M):
            check(time.monotonic() < end and self.read(5), "no", pattern, "in\n" + self.text())

    def end(self):
        while self.read(60):
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)

    # Sequences of xterm that ncurses uses; those that only change looks fall through.
    SEQUENCE = re.compile(r"\033\[([?0-9;]*)([A-Za-z@])|\033[()].|\033.|[\x0e\x0f]")

    def show(self, piece):
        at = 0
        while at < len(piece):
            found = self.SEQUENCE.match(piece, at)
            if found and found.group() == "\033M":
                if self.row == self.top:
                    self.move_lines(self.top, 1)
                self.row = max(self.row - (self.row != self.top), 0)
                at = found.end()
            elif found:
                self.control(found.group(1) or "", found.group(2) or "")
                at = found.end()
            else:
                self.put(piece[at])
                at += 1

    def put(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n":
            if self.row == self.bottom:
                self.move_lines(self.top, -1)
            else:
                self.row = min(self.row + 1, self.rows - 1)
        elif character == "\b":
            self.column = max(self.column - 1, 0)
        elif character >= " " and self.row < self.rows:
            self.column = min(self.column, self.columns - 1)
            self.cells[self.row][self.column] = character
            self.column += 1

    def control(self, words, letter):
        numbers = [int(word) if word.isdigit() else 0 for word in words.split(";")] if words else []
        first = numbers[0] if numbers else 0
        if letter == "H":
            self.row = (first or 1) - 1
            self.column = (numbers[1] if len(numbers) > 1 else 1) - 1
        elif letter == "d":
            self.row = (first or 1) - 1
        elif letter == "G":
            self.column = (first or 1) - 1
        elif letter == "A":
            self.row = max(self.row - (first or 1), 0)
        elif letter == "B":
            self.row = min(self.row + (first or 1), self.rows - 1)
        elif letter == "C":
            self.column += first or 1
        elif letter == "D":
            self.column = max(self.column - (first or 1), 0)
        elif letter == "J":
            if first == 0:
                self.clear(self.row, self.column)
            else:
                self.cells = [[" "] * self.columns for _ in range(self.rows)]
        elif letter == "K":
            row = self.cells[min(self.row, self.rows - 1)]
            span = range(self.column + 1) if first == 1 else range(self.column, self.columns)
            for column in span:
                if column < self.columns:
                    row[column] = " "
        elif letter == "X":
            for column in range(self.column, min(self.column + (first or 1), self.columns)):
                self.cells[self.row][column] = " "
        elif letter == "b":
            last = self.cells[self.row][max(self.column - 1, 0)]
            for _ in range(first or 1):
                self.put(last)
        elif letter == "P":
            row = self.cells[self.row]
            del row[self.column:self.column + (first or 1)]
            row.extend(" " * (self.columns - len(row)))

        elif letter == "@":
            row = self.cells[self.row]
            row[self.column:self.column] = " " * (first or 1)
            del row[self.columns:]
        elif letter in ("L", "M"):
            self.move_lines(self.row, (first or 1) * (1 if letter == "L" else -1))
        elif letter in ("S", "T"):
            self.move_lines(self.top, (first or 1) * (1 if letter == "T" else -1))
        elif letter == "r":
            self.top, self.bottom = (first or 1) - 1, (numbers[1] if len(numbers) > 1 else self.rows) - 1
            self.row = self.column = 0

    def move_lines(self, row, by):
        """Lines of the scroll region from `row` on, down, or up if `by` is negative."""
        count = min(abs(by), self.bottom + 1 - row)
        fresh = [[" "] * self.columns for _ in range(count)]
        lines = self.cells[row:self.bottom + 1]
        self.cells[row:self.bottom + 1] = fresh + lines[:len(lines) - count] if by > 0 else lines[count:] + fresh

    def clear(self, row, column):
        for at in range(column, self.columns):
            self.cells[row][at] = " "
        for below in range(row + 1, self.rows):
            self.cells[below] = [" "] * self.columns


def is_restored(screen):
    """The alternate screen is left, and the cursor is visible."""
    written = screen.written
    return written.rfind("\033[?1049l") > written.rfind("\033[?1049h") and (
        max(written.rfind("\033[?25h"), written.rfind("\033[?12;25h"), written.rfind("\033[?12l\033[?25h"))
        > written.rfind("\033[?25l"))


def choose(screen, name):
    """Moves down until the pool is the chosen one: opening another says so."""
    for _ in range(20):
        screen.send("\n")
        for _ in range(1200):
            screen.read(0.05)
            if re.search(r"^(\S+) #\d+: \d+ span|choose a pool", screen.text(), re.M):
                break
        if re.search(r"^%s #\d+: " % name, screen.text(), re.M):
            return
        if "choose a pool" not in screen.text():
            screen.send("q")
            screen.wait_for("POOL OR PROVIDER")
        screen.send("\033OB")
        while "choose a pool" in screen.text():
            screen.read(5)
    raise AssertionError("cannot open " + name + "\n" + screen.text())


def test_screen(sample):
    screen = Screen(["top", sample.pid, "--interval", 0.2])
    screen.wait_for(r"^  large coalescing #\d+ +5\.0M")
    screen.wait_for(r"q quit")
    check(screen.text().index("large") < screen.text().index("small"), screen.text())
    screen.send("\n")  # the first row is a provider: its pool is opened
    screen.wait_for(r"^\S+ #\d+: \d+ span")
    screen.send("q")
    screen.wait_for("POOL OR PROVIDER")
    screen.send("n")
    screen.wait_for(r"(?s)OS.*small |small .*OS|LINUX_VMM")
    sample.grow()
    screen.wait_for(r"^  large coalescing #\d+ +15\.0M")
    screen.send("?")
    screen.wait_for(r"allocations that live")
    screen.send("q")
    screen.wait_for("POOL OR PROVIDER")
    screen.send("h")
    choose(screen, "large")
    screen.wait_for(r"^largest free piece")
    screen.wait_for(r"#{20}")
    screen.send("q")
    screen.wait_for("POOL OR PROVIDER")
    screen.send("t")
    screen.wait_for(r"large coalescing #\d+ is trimmed")
    screen.send("s")
    screen.wait_for(r"suspend large coalescing #\d+\?.*\(y/n\)")
    screen.send("n")
    screen.wait_for("not suspended")
    screen.send("s")
    screen.wait_for(r"\(y/n\)")
    screen.send("y")
    screen.wait_for(r"large coalescing #\d+ is suspended")
    screen.wait_for(r"^  large coalescing #\d+ .* 1[56]\.0M +15 ")
    screen.send("w")
    screen.wait_for(r"large coalescing #\d+ is resumed")
    screen.resize(12, 60)
    screen.wait_for("POOL OR PROVIDER")
    screen.resize(30, 100)
    screen.wait_for("q quit")
    screen.send("h")
    screen.wait_for(r"^1 of [4-9]")
    screen.send("\033OB")
    screen.wait_for(r"^2 of [4-9]")
    screen.send("/SMA")
    screen.wait_for(r"^1 of 1   /SMA_")
    check("large" not in screen.text() and "small" in screen.text(), screen.text())
    screen.send("x\177\n")
    screen.wait_for(r"^1 of 1   /SMA *$")
    screen.send("\n")
    screen.wait_for(r"^small #\d+: ")
    screen.send("\033")
    screen.wait_for(r"^1 of 1   /SMA *$")
    screen.send("\033")
    screen.wait_for(r"^\d of [4-9] *$")
    screen.send("o")
    screen.wait_for(r"^\d of 2 pools")
    check("OS #" not in screen.text(), screen.text())
    screen.send("q")
    check(screen.end() == 0)
    check(is_restored(screen), "the terminal is not restored")


def test_screen_of_an_arena():
    pages = r"pages: 0B? spare, 0B? stale, 0B? moved so far$"
    with Sample("coalescing:name=moving,arena=yes,arena_page=64K,arena_size=1G over linux_vmm") as sample:
        screen = Screen(["top", sample.pid, "--interval", 0.2])
        screen.wait_for(r"(?s)^  moving coalescing #\d+[^\n]*\n    " + pages)
        choose(screen, "moving")
        screen.wait_for("^" + pages)
        screen.send("q")
        screen.wait_for("POOL OR PROVIDER")
        screen.send("q")
        check(screen.end() == 0)


def test_screen_shows_who_allocates(sample):
    """Without the manual: the line of the chosen pool names the key."""
    screen = Screen(["top", sample.pid, "--interval", 0.2])
    screen.wait_for(r"^  large coalescing #\d+ +5\.0M")
    screen.send("o")
    screen.wait_for(r"^1 of 2")
    sample.grow()
    screen.wait_for(r"it grows: c shows who allocates|^  large coalescing #\d+ +15\.0M")
    screen.send("c")
    screen.wait_for(r"is being recorded")
    sample.grow()
    screen.send("x")
    screen.wait_for(r"^large #\d+: recorded, and live at the end, by place")
    screen.wait_for(r"^ +10\.0M  10 allocations")
    screen.wait_for(r"^ +main\b.*umf_test_pools")
    screen.wait_for(r"q back")
    screen.send("q")
    screen.wait_for("POOL OR PROVIDER")
    screen.send("q")
    check(screen.end() == 0)


def test_screen_of_a_process_that_ends():
    with Sample() as sample:
        screen = Screen(["top", sample.pid, "--interval", 0.1])
        screen.wait_for(r"^  large coalescing #")
        sample.process.kill()
        sample.process.wait()
        check(screen.end() == 1)
        check("has ended" in screen.written and is_restored(screen), screen.written[-300:])


def test_signals_restore_the_terminal(sample):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        screen = Screen(["top", sample.pid])
        screen.wait_for(r"^  large coalescing #")
        os.kill(screen.pid, number)
        check(screen.end() == 0, number)
        check(is_restored(screen), number)


def test_a_terminal_without_colours(sample):
    os.environ["NO_COLOR"] = "1"
    screen = Screen(["top", sample.pid])
    screen.wait_for(r"^  large coalescing #")
    screen.send("q")
    check(screen.end() == 0)
    check(not re.search(r"\033\[3[0-7]m", screen.written), "colours in spite of NO_COLOR")
    del os.environ["NO_COLOR"]


def has_screen():
    with Sample() as sample:
        screen = Screen(["top", sample.pid, "--interval", 0.2])
        while screen.read(2) and "POOL OR PROVIDER" not in screen.text():
            pass
        screen.send("q")
        screen.end()
        return "built without ncurses" not in screen.written


def main():
    tests = [(name, test) for name, test in sorted(globals().items()) if name.startswith("test_")]
    screens = has_screen()
    if not screens:
        note("skipped: the live screen; this umfctl was built without ncurses (package libncurses-dev)")
    for name, test in tests:
        if not screens and ("screen" in name or "terminal" in name):
            continue
        if test.__code__.co_argcount:
            with Sample() as sample:
                test(sample)
        else:
            test()
        note(name + " passed")


main()
