#!/usr/bin/env python3
"""syntax.py - does every C file of a build folder pass its compiler without a word? Compiles nothing, so it takes a fraction of a build.

    tests/syntax.py BUILD_FOLDER

BUILD_FOLDER was configured by cmake, nothing in it needs to have been built. C++ and CUDA are left out. Ends with 1 unless
every file passed, and with the first files' messages.
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def command_of(entry):
    words = shlex.split(entry["command"])
    at = words.index("-o")
    return [word for word in words[:at] + words[at + 2:] if word != "-c"] + ["-fsyntax-only"]


def check(entry):
    done = subprocess.run(command_of(entry), cwd=entry["directory"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return entry["file"], done.returncode, done.stdout + done.stderr


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tests/syntax.py BUILD_FOLDER")
    entries = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())
    entries = [entry for entry in entries if entry["file"].endswith(".c")]
    if not entries:
        sys.exit("syntax.py: compile_commands.json names no C file")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        bad = [result for result in pool.map(check, entries) if result[1] != 0 or result[2]]
    for file, status, words in bad[:10]:
        print(f"{file}: status {status}\n{words}")
    print(f"{len(entries)} C files, {len(bad)} with warnings or errors")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
