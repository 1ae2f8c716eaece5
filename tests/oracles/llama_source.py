"""llama_source.py - the sources of llama.cpp that PyPI's llama-cpp-python carries: vocabularies, templates, quantisers.

They are fetched once, and kept beside the packages of the running Python. LLAMA_CPP names a folder to take instead.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

PACKAGE = "llama-cpp-python==0.3.36"


def llama_source():
    """The folder vendor/llama.cpp."""
    if os.environ.get("LLAMA_CPP"):
        return pathlib.Path(os.environ["LLAMA_CPP"])
    kept = pathlib.Path(sys.prefix) / "llama-cpp-python"
    if not kept.is_dir():
        with tempfile.TemporaryDirectory(dir=sys.prefix) as scratch:
            done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
                                   "--no-deps", "--no-binary", ":all:", "--dest", scratch, PACKAGE],
                                  capture_output=True, text=True)
            archives = sorted(pathlib.Path(scratch).glob("*.tar.gz"))
            if not archives:
                sys.exit("pip could not download the source of %s: %s" % (PACKAGE, done.stderr[-400:]))
            with tarfile.open(archives[0]) as archive:
                archive.extractall(scratch + "/unpacked", (m for m in archive if "/vendor/llama.cpp/" in m.name),
                                   filter="data")
            os.rename(scratch + "/unpacked", kept)
    return next(kept.glob("*/vendor/llama.cpp"))


def llama_python():
    """A Python that has llama_cpp: LLAMA_PYTHON, or this one; None if neither. Installing it compiles for minutes."""
    return os.environ.get("LLAMA_PYTHON") or (sys.executable if importlib.util.find_spec("llama_cpp") else None)
