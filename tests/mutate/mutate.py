#!/usr/bin/env python3
"""mutate.py - do the simulated CUDA and the tests of the HTTP server earn their trust? Breaks one thing of the GPU path or of that
server at a time; tests must notice.

  tests/mutate/mutate.py [--list] [--only NAME[,NAME]...] [--count N [--seed S]] [--work FOLDER] [--jobs J]

A person who has changed kernels, the communicator or tests/cusim runs all of them by hand, in the background:

  tests/mutate/mutate.py --work /tmp/mutate >mutate.log 2>&1 &

CTest runs --list (are the lines still there?) and, under the label slow, a few that change from day to day.

Mutations are in tests/mutate/*.mut, one block each:

    == NAME FILE CHECK[,CHECK...]
    -lines to find, once in FILE, whatever their indentation
    +lines to put in their place
    @ the only sources to compile anew, if FILE is a header of many
    ! why nothing can notice it (only for a mutation that is known to survive)

A check is a name of CHECKS below, with an argument after a colon. A mutation is caught when one of its checks fails; one
that does not compile, or whose lines are not found, is an error of the list. Works on a copy of the tree, so that the
checkout is never touched; --work keeps the copy and its build, which makes the next run start sooner. Ends with 1 unless
at least 98 % are caught and every survivor is explained.
"""
import argparse
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))
CAUGHT_SHARE, SHARE_COUNTS_FROM = 0.98, 50
# A check may take 8 times what it took without a mutation, within these seconds.
SLOWER, SECONDS_MIN, SECONDS_MAX, SECONDS_UNKNOWN = 8, 30, 600, 120

SIM = "env TERN_CUDA_PLUGIN={plugin} TERN_CUDA_CACHE=off TERN_BACKEND=cuda "

# Name -> (targets to build, command). {tree}, {build}, {plugin}, {arg} and {words} (arg with spaces for +) are filled in.
CHECKS = {
    # the smaller cases of an op on the simulator, once each, up to the first that fails
    "op": (["tern_cuda_sim", "kernels_conform_test"],
           SIM + "TERN_OP={arg} TERN_ELEMENTS_MAX=60000 TERN_RUNS=1 TERN_FIRST=1 {build}/tests/kernels_conform_test"),
    # one case, by its name with + for spaces: case:attention_fwd+b=1+tq=64+...
    "case": (["tern_cuda_sim", "kernels_conform_test"],
             SIM + "TERN_OP={op} TERN_CASE={words} TERN_RUNS=1 TERN_FIRST=1 {build}/tests/kernels_conform_test"),
    # what the matrix product promises beyond its values: plans, cuts, graphs, files
    "gemm": (["tern_cuda_sim", "kernels_cuda_gemm_test"], SIM + "{build}/tests/kernels_cuda_gemm_test"),
    # what the case table cannot ask of the kernels: bad ids, shifted sums, steps that are skipped
    "cudaops": (["tern_cuda_sim", "kernels_cuda_ops_test"], SIM + "{build}/tests/kernels_cuda_ops_test"),
    # queues: edges, uploads, graphs, what is given back
    "device": (["tern_cuda_sim", "kernels_cuda_device_test"], SIM + "{build}/tests/kernels_cuda_device_test"),
    # the HTTP server by all of its tests
    "http": (["serve_http_test"] + [f"serve_http_{subject}_test" for subject in ("cases", "gone", "limits", "mutate", "tls")],
             "ctest --test-dir {build} --timeout 100 -R ^serve_http"),
    # a check of comm_nccl_ranks on so many ranks: nccl:primitives_3
    "nccl": (["tern_cuda_sim", "comm_nccl_ranks", "tern_mpi"], "ctest --test-dir {build} -V -R ^comm_nccl_{arg}$"),
    # ranks that are killed, stopped or late, errors of the library: the watchdog's word on it
    "fault": (["tern_cuda_sim", "comm_nccl_fault_test"],
              SIM + "SWEEP_COUNT=2 {build}/tests/comm_nccl_fault_test"),
    # a test program without the simulator, by its name
    "unit": (["{arg}"], "{build}/tests/{arg}"),
    # a short training run on that many simulated GPUs against the cpu backend: train.sh
    "train": (["tern_cuda_sim", "tern", "tern_mpi"], "{tree}/tests/mutate/train.sh {build}/bin/tern {plugin} {arg}"),
}


def fail(sentence):
    sys.exit(f"mutate.py: {sentence}")


class Mutation:
    def __init__(self, name, path, checks, where):
        self.name, self.path, self.where = name, path, where
        self.subject = os.path.basename(where).partition(".")[0]  # of the file it is in: "ops"
        self.checks = [check.partition(":")[::2] for check in checks.split(",")]
        self.old, self.new, self.sources, self.excuse = [], [], [], ""
        for check, _ in self.checks:
            if check not in CHECKS:
                fail(f"{where}: there is no check '{check}'; expected one of {', '.join(CHECKS)}")

    def apply(self, text):
        """The file with the change, found by its lines without indentation; the new lines take the first one's."""
        lines = text.split("\n")
        wanted = [line.strip() for line in self.old]
        places = [i for i in range(len(lines) - len(wanted) + 1)
                  if [line.strip() for line in lines[i:i + len(wanted)]] == wanted]
        if len(places) != 1:
            fail(f"{self.where}: mutation {self.name}: its lines are {len(places)} times in {self.path}, expected once")
        at = places[0]
        indent = lines[at][:len(lines[at]) - len(lines[at].lstrip())]
        fresh = [indent + line.strip() if line.strip() else "" for line in self.new]
        return "\n".join(lines[:at] + fresh + lines[at + len(wanted):])


def read_mutations():
    mutations = []
    for name in sorted(os.listdir(HERE)):
        if not name.endswith(".mut"):
            continue
        with open(os.path.join(HERE, name), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                line, where = line.rstrip("\n"), f"tests/mutate/{name}:{number}"
                if line.startswith("== "):
                    words = line[3:].split()
                    if len(words) != 3:
                        fail(f"{where}: found '{line}', expected '== NAME FILE CHECKS'")
                    mutations.append(Mutation(*words, where))
                elif line[:1] in "-+@!" and line and mutations:
                    if line[0] == "!":
                        mutations[-1].excuse += line[1:]
                    elif line[0] == "@":
                        mutations[-1].sources += line[1:].split()
                    else:
                        (mutations[-1].old if line[0] == "-" else mutations[-1].new).append(line[1:])
                elif line and not line.startswith("#"):
                    fail(f"{where}: found '{line}', expected a line that begins with == - + @ ! or #")
    for name, count in collections.Counter(mutation.name for mutation in mutations).items():
        if count > 1:
            fail(f"there are {count} mutations of the name {name}")
    return mutations


def end_session(session):
    """Ends what a check started: mpirun gives its ranks groups of their own, but all are of the session made for the check."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                if int(file.read().rpartition(")")[2].split()[3]) == session:
                    os.kill(int(name), signal.SIGKILL)
        except (OSError, ValueError):
            pass  # it ended by itself


class Tree:
    """A copy of the checkout and a build of it."""

    def __init__(self, folder, jobs, checks, is_trusted):
        self.tree, self.build, self.jobs = os.path.join(folder, "tree"), os.path.join(folder, "build"), jobs
        self.output, self.seconds, self.is_trusted = "", {}, is_trusted
        self.copy()
        # warnings may come from a mutation; no nvcc is needed
        self.must(["cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DTERN_CUDA=OFF", "-DTERN_WERROR=OFF",
                   "-DCMAKE_BUILD_TYPE=RelWithDebInfo"])
        self.values = {"tree": self.tree, "build": self.build,
                       "plugin": os.path.join(self.build, "bin", "libtern_cuda_sim.so")}
        done = self.rebuild(checks)
        if done.returncode != 0:
            fail(f"the tree does not build:\n{done.stdout[-4000:]}")

    def copy(self):
        """What git would take; a file that is the same keeps its time, so that it is not compiled again."""
        files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                               check=True).stdout.splitlines()
        kept = {os.path.join(self.tree, path) for path in files if os.path.isfile(os.path.join(ROOT, path))}
        for folder, _, names in os.walk(self.tree):
            for name in names:
                if os.path.join(folder, name) not in kept:
                    os.unlink(os.path.join(folder, name))
        for target in kept:
            with open(os.path.join(ROOT, os.path.relpath(target, self.tree)), "rb") as file:
                content = file.read()
            if os.path.isfile(target):
                with open(target, "rb") as file:
                    if file.read() == content:
                        continue
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(os.path.join(ROOT, os.path.relpath(target, self.tree)), target)

    def must(self, command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            fail(f"'{' '.join(command)}' failed:\n{done.stdout[-4000:]}")

    def rebuild(self, checks):
        """Brings what these checks need up to date."""
        command = ["cmake", "--build", self.build, "-j", str(self.jobs), "--target"]
        command += sorted({target.format(arg=arg) for name, arg in checks for target in CHECKS[name][0]})
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def check(self, name, arg):
        """True when the check passes."""
        usual = self.seconds.get((name, arg), 0 if self.is_trusted else SECONDS_MAX)
        limit = SECONDS_UNKNOWN if usual == 0 else min(max(SECONDS_MIN, SLOWER * usual), SECONDS_MAX)
        words = [word.format(arg=arg, words=arg.replace("+", " "), op=arg.partition("+")[0], **self.values)
                 for word in CHECKS[name][1].split()]
        started = time.monotonic()
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   stdin=subprocess.DEVNULL, start_new_session=True, cwd=self.build)
        try:
            self.output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            end_session(process.pid)
            self.output = process.communicate()[0] + f"\n(not over after {limit:.0f} s)"
            return False
        if not self.is_trusted:
            self.seconds.setdefault((name, arg), time.monotonic() - started)
        return process.returncode == 0

    def change(self, mutation, text):
        """Writes the file so that the build sees it: by its time or, if the mutation names sources, by theirs."""
        path = os.path.join(self.tree, mutation.path)
        before = os.stat(path)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        if mutation.sources:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        for source in mutation.sources:
            os.utime(os.path.join(self.tree, source))

    def try_one(self, mutation):
        """Whether it compiles, and the check that caught it or None."""
        with open(os.path.join(self.tree, mutation.path), encoding="utf-8") as file:
            text = file.read()
        try:
            self.change(mutation, mutation.apply(text))
            done = self.rebuild(mutation.checks)
            if done.returncode != 0:
                self.output = done.stdout
                return False, None
            for name, arg in mutation.checks:
                if not self.check(name, arg):
                    return True, f"{name}:{arg}" if arg else name
            return True, None
        finally:
            self.change(mutation, text)


def first_words(output):
    """What the failing check said: the first line that looks like a finding."""
    for line in output.splitlines():
        if any(word in line for word in ("cusim: ", "off by", "FAILED", "rror: ", "bits", "not over", "wrong")):
            return line.strip()[:110]
    return output.strip().splitlines()[-1][:110] if output.strip() else ""


def main():
    parser = argparse.ArgumentParser(prog="mutate.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the mutations and check that their lines are found")
    parser.add_argument("--only", help="names of mutations or of subjects (ops, device, ...), comma-separated")
    parser.add_argument("--count", type=int, default=0, help="a random choice of so many (0: all)")
    parser.add_argument("--seed", type=int, default=int(time.time()) // 86400, help="of that choice (the day)")
    parser.add_argument("--work", help="folder for the copy and its build, kept (a temporary one)")
    parser.add_argument("--trust", action="store_true", help="leave out that the checks pass without a mutation")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="of the compiler")
    args = parser.parse_args()
    mutations = read_mutations()
    for mutation in mutations:
        with open(os.path.join(ROOT, mutation.path), encoding="utf-8") as file:
            mutation.apply(file.read())
        for source in mutation.sources:
            if not os.path.isfile(os.path.join(ROOT, source)):
                fail(f"{mutation.where}: there is no {source}")
    if args.list:
        for mutation in mutations:
            print(f"{mutation.name:32} {mutation.path:36} {','.join(':'.join(c) for c in mutation.checks)}")
        print(f"{len(mutations)} mutations")
        return 0
    if args.only:
        wanted = args.only.split(",")
        mutations = [m for m in mutations if m.name in wanted or m.subject in wanted]
        for name in wanted:
            if not any(name in (m.name, m.subject) for m in mutations):
                fail(f"--only: there is no mutation or subject '{name}'; see --list")
    elif args.count:
        mutations = random.Random(args.seed).sample(mutations, min(args.count, len(mutations)))
    folder = args.work or tempfile.mkdtemp(prefix="tern-mutate-")
    checks = sorted({check for mutation in mutations for check in mutation.checks})
    try:
        return run(Tree(folder, args.jobs, checks, args.trust), mutations, [] if args.trust else checks)
    finally:
        if not args.work:
            shutil.rmtree(folder, ignore_errors=True)


def run(tree, mutations, checks):
    for name, arg in checks:
        if not tree.check(name, arg):
            fail(f"{name}:{arg} fails without any mutation:\n{tree.output[-3000:]}")
        print(f"{name}:{arg} passes without a mutation, {tree.seconds[(name, arg)]:.1f} s", flush=True)
    by_check, survivors, broken, started = collections.Counter(), [], [], time.monotonic()
    mutations = sorted(mutations, key=lambda m: m.path)  # a file that is changed again need not be compiled in between
    for number, mutation in enumerate(mutations, 1):
        compiles, by = tree.try_one(mutation)
        if by:
            by_check[by] += 1
            verdict = f"caught by {by}: {first_words(tree.output)}"
        elif compiles:
            survivors.append(mutation)
            verdict = f"SURVIVED{mutation.excuse}"
        else:
            broken.append(mutation)
            verdict = f"DOES NOT COMPILE:\n{tree.output[-2000:]}"
        left = (time.monotonic() - started) / number * (len(mutations) - number)
        print(f"[{number}/{len(mutations)}, {left:.0f} s left] {mutation.name}: {verdict}", flush=True)
    for by, count in sorted(by_check.items()):
        print(f"  {count:4} caught by {by}")
    caught = sum(by_check.values())
    print(f"{caught} of {len(mutations)} mutations caught")
    for mutation in survivors:
        print(f"  survived: {mutation.name} ({mutation.path}):{mutation.excuse or ' not explained'}")
    for mutation in broken:
        print(f"  does not compile: {mutation.name} ({mutation.where})")
    unexplained = any(not mutation.excuse for mutation in survivors)
    is_sample = len(mutations) < SHARE_COUNTS_FROM  # a share of a handful says nothing
    is_enough = is_sample or caught >= CAUGHT_SHARE * len(mutations)
    return 0 if not unexplained and not broken and is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
