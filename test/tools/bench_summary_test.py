#!/usr/bin/env python3
"""benchmark/summary.py: bench_summary_test.py SUMMARY."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SUMMARY = sys.argv.pop(1)
OURS = "libumf_proxy"


def program(what, group, name, allocator, values):
    return {"key": f"judge/program {what}/{group}/{name}/{allocator}", "unit": "s", "best": min(values),
            "median": values[0], "rounds": len(values), "values": values}


def target(key, must, stretch=None, value=0.001):
    """`value`: of this run alone, which programs of others must not use."""
    return {"what": f"target of {key}", "key": key, "unit": "x", "value": value, "must": must, "stretch": stretch,
            "verdict": "reached"}


def result(key, best):
    return {"key": key, "unit": "ns", "best": best, "median": best, "rounds": 1, "values": [best]}


class Summary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.count = 0

    def run_of(self, results, targets=()):
        self.count += 1
        path = os.path.join(self.folder, f"{self.count}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"results": results, "targets": list(targets)}, file)
        return path

    def summary(self, *arguments):
        done = subprocess.run([sys.executable, "-B", SUMMARY, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def line(self, output, begin):
        found = [line.split() for line in output.splitlines() if line.strip().startswith(begin)]
        self.assertEqual(len(found), 1, output)
        return found[0]

    def value(self, output, key):
        """The value and the verdict of a target."""
        words = self.line(output, f"target of {key} ")
        at = words.index("x")
        return float(words[at - 1]), " ".join(words[at + 5:])

    def test_rounds_of_all_runs_are_one(self):
        key = f"judge/time/single/{OURS}/mimalloc"
        runs = [self.run_of([program("time", "single", "cfrac", OURS, values),
                             program("time", "single", "cfrac", "mimalloc", [2.0] * len(values))], [target(key, 1.0)])
                for values in ([1.0, 9.0], [3.0])]
        output = self.summary(*runs)
        self.assertEqual(self.line(output, "single"), ["single", "cfrac", "1.50", "mimalloc"])
        self.assertEqual(self.value(output, key), (1.5, "MISSED"))
        self.assertIn("0 reached, 1 missed", output)

    def test_ratios_are_geometric_means_of_what_both_have(self):
        times = {"a": (2.0, 1.0, 4.0), "b": (8.0, 1.0, 2.0), "c": (None, 1.0, 1.0), "d": (5.0, None, 2.5)}
        results = [program("time", "1 thread", name, allocator, [value]) for name, values in times.items()
                   for allocator, value in zip((OURS, "mimalloc", "glibc"), values) if value]
        keys = [f"judge/time/1 thread/{OURS}/{peer}" for peer in ("mimalloc", "glibc", "best")]
        output = self.summary(self.run_of(results, [target(key, 4.0, 1.3) for key in keys]))
        self.assertEqual(self.value(output, keys[0]), (4.0, "reached"))  # of 2 and 8
        self.assertEqual(self.value(output, keys[1]), (1.587, "reached"))  # of 0.5, 4 and 2
        self.assertEqual(self.value(output, keys[2]), (3.175, "reached"))  # of 2, 8 and 2
        self.assertNotIn(" c ", output.split("targets")[0])

    def test_another_pool_of_ours_is_no_peer(self):
        results = [program("time", "single", "a", allocator, [value])
                   for allocator, value in ((OURS, 2.0), (OURS + " scalable", 1.0), ("glibc", 4.0))]
        key = f"judge/time/single/{OURS}/best"
        self.assertEqual(self.value(self.summary(self.run_of(results, [target(key, 0.6, 0.5)])), key),
                         (0.5, "reached, stretch too"))

    def test_other_programs_count_nowhere(self):
        results = [program(what, group, "a", allocator, [value]) for what in ("time", "rss")
                   for group, ours in (("single", 2.0), ("16 threads", 3.0), ("others", 100.0))
                   for allocator, value in ((OURS, ours), ("jemalloc", 1.0))]
        keys = [f"judge/worst/{OURS}", f"judge/rss/all/{OURS}/jemalloc"]
        output = self.summary(self.run_of(results, [target(key, 5.0) for key in keys]))
        self.assertEqual(self.value(output, keys[0]), (3.0, "reached"))
        self.assertEqual(self.value(output, keys[1]), (2.449, "reached"))
        self.assertIn("others      a              100.00", output)

    def test_what_was_not_measured_is_left_out(self):
        key = f"judge/time/single/{OURS}/mimalloc"
        output = self.summary(self.run_of([], [target(key, 1.0), target("pair", 1.0, value=None)]))
        self.assertNotIn("target of", output)
        self.assertIn("0 reached, 0 missed", output)

    def test_of_other_targets_the_best_run_counts(self):
        runs = [self.run_of([], [dict(target("pair", 1.0, value=value), verdict=verdict)])
                for value, verdict in ((3.0, "MISSED"), (0.5, "reached"), (2.0, "MISSED"))]
        self.assertEqual(self.value(self.summary(*runs), "pair"), (0.5, "reached"))

    def test_beside_another_library(self):
        ours = [self.run_of([result("pair/64/1/disjoint over os", best), result("pair/64/1/glibc", 1.0)])
                for best in (6.0, 9.0)]
        other = self.run_of([result("pair/64/1/disjoint over os", 100.0), result("pair/64/1/glibc", 1.0)])
        output = self.summary(*ours, "--reference", other)
        words = self.line(output, "pair/64/1/disjoint over os")
        self.assertEqual(words[3:7], ["6", "100", "ns", "0.060"])
        self.assertIn("must be <= 0.08: reached", output)
        self.assertNotIn("glibc", output)

    def test_without_files_it_explains_itself(self):
        done = subprocess.run([sys.executable, "-B", SUMMARY], capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("summary.py RUN.json...", done.stderr)


if __name__ == "__main__":
    unittest.main()
