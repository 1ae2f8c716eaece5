#!/usr/bin/env python3
"""mutate.py - does the simulated CUDA earn its trust? Breaks one thing of the GPU path at a time; tests must notice.

  tests/mutate/mutate.py [--list] [--only NAME[,NAME]] [--count N --seed S] [--work FOLDER] [--jobs J]

Mutations are in tests/mutate/*.mut, one block each:

    == NAME FILE CHECK[,CHECK...]
    -lines to find, once in FILE, whatever their indentation
    +lines to put in their place
    ! why nothing can notice it (only for a mutation that is known to survive)

A check is a name of CHECKS below, with an argument after a colon. A mutation is caught when one of its checks fails; one
that does not compile, or whose lines are not found, is an error of the list. Works on a copy of the tree, so that the
checkout is never touched. Ends with 1 unless at least 98 % are caught and every survivor is explained.
"""
import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))
CAUGHT_SHARE = 0.98

# Name -> (seconds at most, targets to build, command). {tree}, {build}, {plugin} and {arg} are filled in.
CHECKS = {
    # the op's cases on the simulator, for three seeds
    "op": (300, ["tern_cuda_sim", "kernels_conform_test"],
           "env TERN_OP={arg} TERN_CUDA_PLUGIN={plugin} CUSIM_SEEDS=3 "
           "{tree}/tests/cusim/seeds.sh {build}/tests/kernels_conform_test"),
    # one test of CTest, by its name
    "test": (300, [], "ctest --test-dir {build} --output-on-failure -R ^{arg}$"),
    # a short training run on the simulator against the cpu backend: tests/mutate/train.sh
    "train": (300, ["tern_cuda_sim", "tern"], "{tree}/tests/mutate/train.sh {build}/bin/tern {plugin} {arg}"),
}


def fail(sentence):
    sys.exit(f"mutate.py: {sentence}")


class Mutation:
    def __init__(self, name, path, checks, where):
        self.name, self.path, self.where = name, path, where
        self.checks = [check.partition(":")[::2] for check in checks.split(",")]
        self.old, self.new, self.excuse = [], [], ""
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
                elif line[:1] in "-+!" and line and mutations:
                    if line[0] == "!":
                        mutations[-1].excuse += line[1:]
                    else:
                        (mutations[-1].old if line[0] == "-" else mutations[-1].new).append(line[1:])
                elif line and not line.startswith("#"):
                    fail(f"{where}: found '{line}', expected a line that begins with == - + ! or #")
    names = [mutation.name for mutation in mutations]
    for name in set(names):
        if names.count(name) > 1:
            fail(f"there are {names.count(name)} mutations of the name {name}")
    return mutations


class Tree:
    """A copy of the checkout and a build of it."""

    def __init__(self, folder, jobs):
        self.tree, self.build, self.jobs = os.path.join(folder, "tree"), os.path.join(folder, "build"), jobs
        files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                               check=True).stdout.splitlines()
        for path in files:
            target = os.path.join(self.tree, path)
            if os.path.isfile(os.path.join(ROOT, path)):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy2(os.path.join(ROOT, path), target)
        # a configured build of the copy; warnings may come from a mutation
        self.must(["cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DTERN_CUDA=OFF", "-DTERN_WERROR=OFF",
                   "-DCMAKE_BUILD_TYPE=RelWithDebInfo"])
        self.must(["cmake", "--build", self.build, "-j", str(jobs)])
        self.values = {"tree": self.tree, "build": self.build,
                       "plugin": os.path.join(self.build, "bin", "libtern_cuda_sim.so")}

    def must(self, command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            fail(f"'{' '.join(command)}' failed:\n{done.stdout[-4000:]}")

    def rebuild(self, targets):
        command = ["cmake", "--build", self.build, "-j", str(self.jobs)]
        for target in targets:
            command += ["--target", target]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def check(self, name, arg):
        """True when the check passes."""
        limit, _, command = CHECKS[name]
        words = [word.format(arg=arg, **self.values) for word in command.split()]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   stdin=subprocess.DEVNULL, start_new_session=True, cwd=self.build)
        try:
            self.output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # our own session: the check and what it started
            self.output = process.communicate()[0] + "\n(time limit)"
            return False
        return process.returncode == 0

    def try_one(self, mutation):
        """The check that caught it, or None."""
        path = os.path.join(self.tree, mutation.path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(mutation.apply(text))
            for name, arg in mutation.checks:
                done = self.rebuild(CHECKS[name][1])
                if done.returncode != 0:
                    fail(f"{mutation.where}: mutation {mutation.name} does not compile:\n{done.stdout[-2000:]}")
                if not self.check(name, arg):
                    return f"{name}:{arg}"
            return None
        finally:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)


def first_words(output):
    """What the failing check said: the first line that looks like a finding."""
    for line in output.splitlines():
        if any(word in line for word in ("cusim", "off by", "FAILED", "error", "bits", "time limit")):
            return line.strip()[:110]
    return output.strip().splitlines()[-1][:110] if output.strip() else ""


def main():
    parser = argparse.ArgumentParser(prog="mutate.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the mutations and check that their lines are found")
    parser.add_argument("--only", help="names, comma-separated")
    parser.add_argument("--count", type=int, default=0, help="a random choice of so many (0: all)")
    parser.add_argument("--seed", type=int, default=0, help="of that choice")
    parser.add_argument("--work", help="folder for the copy, kept (a temporary one)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="of the compiler")
    args = parser.parse_args()
    mutations = read_mutations()
    if args.list:
        for mutation in mutations:
            with open(os.path.join(ROOT, mutation.path), encoding="utf-8") as file:
                mutation.apply(file.read())
            print(f"{mutation.name:32} {mutation.path:36} {','.join(':'.join(c) for c in mutation.checks)}")
        print(f"{len(mutations)} mutations")
        return 0
    if args.only:
        wanted = args.only.split(",")
        mutations = [m for m in mutations if m.name in wanted]
        if len(mutations) != len(wanted):
            fail(f"--only {args.only}: not all of these are there; see --list")
    elif args.count:
        mutations = random.Random(args.seed).sample(mutations, min(args.count, len(mutations)))
    folder = args.work or tempfile.mkdtemp(prefix="tern-mutate-")
    try:
        return run(Tree(folder, args.jobs), mutations)
    finally:
        if not args.work:
            shutil.rmtree(folder, ignore_errors=True)


def run(tree, mutations):
    clean = sorted({check for mutation in mutations for check in map(tuple, mutation.checks)})
    for name, arg in clean:
        if not tree.check(name, arg):
            fail(f"{name}:{arg} fails without any mutation:\n{tree.output[-3000:]}")
    caught, survivors, started = 0, [], time.monotonic()
    for number, mutation in enumerate(mutations, 1):
        by = tree.try_one(mutation)
        caught += by is not None
        if by is None:
            survivors.append(mutation)
        left = (time.monotonic() - started) / number * (len(mutations) - number)
        verdict = f"caught by {by}: {first_words(tree.output)}" if by else f"SURVIVED {mutation.excuse}"
        print(f"[{number}/{len(mutations)}, {left:.0f} s left] {mutation.name}: {verdict}", flush=True)
    unexplained = [m.name for m in survivors if not m.excuse]
    print(f"{caught} of {len(mutations)} mutations caught")
    for mutation in survivors:
        print(f"  survived: {mutation.name} ({mutation.path}):{mutation.excuse or ' not explained'}")
    return 0 if not unexplained and caught >= CAUGHT_SHARE * len(mutations) else 1


if __name__ == "__main__":
    sys.exit(main())
