"""gpu_static_test.py - what bench/gpu_static.py says of listings that are written here, one thing wrong at a time.

A stand-in for cuobjdump prints them, in the form of the real one (CUDA 13), so no CUDA is needed.
"""
import contextlib
import importlib.util
import io
import os
import stat
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STAND_IN = """#!/bin/bash
cat "$(dirname "$0")/$1" && exit
echo "cuobjdump info    : File '$2' does not contain device code" >&2
exit 255
"""
GEMM, SPAN = "_Z4gemmILi64EEvPf", "_Z4spanPf"
MATRIX_CODE = ("HMMA.16816.F32.BF16 R4, R8, R2, R4", "LDSM.16.M88.4 R4, [R2]", "LDGSTS.E.BYPASS.128 [R3], [R4.64]",
               "HFMA2.MMA R9, -RZ, RZ, 0, 1")
SPAN_CODE = ("LDG.E.128 R4, [R2.64]", "@!P0 STG.E.128 [R2.64], R4", "LDG.E R1, [R2.64]")


def load():
    spec = importlib.util.spec_from_file_location("gpu_static", os.path.join(ROOT, "bench", "gpu_static.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.RULES = (module.Rule(r"gemm<64>", tensor=True), module.Rule(r"span", wide="load store"))
    return module


class Listing:
    """Kernels of a library as cuobjdump lists them."""

    def __init__(self):
        self.archs = ["sm_80", "sm_90", "sm_100"]
        self.code = {GEMM: list(MATRIX_CODE), SPAN: list(SPAN_CODE)}
        self.threads = {GEMM: 128, SPAN: 256}
        self.stack = {GEMM: 0, SPAN: 0}
        self.ptx = "PTX file    1: lib.1.sm_100.ptx\n"

    def write(self, folder):
        use, sass, elf = "", "", ""
        for arch in self.archs:
            head = f"\nFatbin elf code:\n================\narch = {arch}\ncode version = [1,8]\n\n"
            use += head + "Resource usage:\n Common:\n  GLOBAL:0\n"
            sass += head + f"\tcode for {arch}\n"
            elf += head
            for symbol, code in self.code.items():
                reserved = 0 if arch == "sm_80" else 1024
                use += (f" Function {symbol}:\n  REG:128 STACK:{self.stack[symbol]} SHARED:{reserved + 512} LOCAL:0 "
                        "CONSTANT[0]:456 TEXTURE:0 SURFACE:0 SAMPLER:0\n")
                sass += f"\t\tFunction : {symbol}\n\t.headerflags\t@\"EF_CUDA_SM80\"\n"
                sass += "".join(f"        /*{16 * i:04x}*/                   {text} ;      /* 0x00000a00ff017624 */\n"
                                for i, text in enumerate(code))
                elf += f".nv.info.{symbol}\n\t<0x1>\n\tAttribute:\tEIATTR_MAXREG_COUNT\n\tFormat:\tEIFMT_HVAL\n\tValue:\t0xff\n"
                if self.threads[symbol]:
                    elf += ("\t<0x2>\n\tAttribute:\tEIATTR_MAX_THREADS\n\tFormat:\tEIFMT_SVAL\n"
                            f"\tValue:\t0x{self.threads[symbol]:x} 0x1 0x1 \n")
        for name, text in (("--dump-resource-usage", use), ("-sass", sass), ("-elf", elf), ("--list-ptx", self.ptx)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)


class GpuStatic(unittest.TestCase):
    def check(self, listing, module=None):
        """Exit status, table, problems."""
        out, err = io.StringIO(), io.StringIO()
        module = module or load()
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "cuobjdump")
            with open(program, "w", encoding="utf-8") as file:
                file.write(STAND_IN)
            os.chmod(program, stat.S_IRWXU)
            listing.write(folder)
            sys.argv = ["gpu_static.py", program, os.path.join(folder, "lib.so")]
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = module.main()
        return status, out.getvalue(), err.getvalue()

    def fails(self, listing, sentence, module=None):
        status, _, problems = self.check(listing, module)
        self.assertEqual(status, 1)
        self.assertIn(sentence, problems)

    def test_good(self):
        status, table, problems = self.check(Listing())
        self.assertEqual((status, problems), (0, ""))
        rows = [line.split() for line in table.splitlines() if line.startswith("span ")]
        self.assertEqual([row[1] for row in rows], ["sm_80", "sm_90", "sm_100"])
        # registers, threads, shared (the system's part taken off), stack, HMMA, LDSM, LDGSTS, LDG.128, STG.128, local
        for row in rows:
            self.assertEqual(row[2:12], "128 256 512 0 0 0 0 1 1 0".split())
        # 65,536 registers hold two blocks of 8 warps at 128 registers a thread: 16 of 64 warps
        self.assertEqual([row[12] for row in rows], ["25"] * 3)
        matrix = next(line.split() for line in table.splitlines() if line.startswith("gemm<64> "))
        self.assertEqual(matrix[6:12], "1 1 1 0 0 0".split())  # HFMA2.MMA and LDGSTS.128 are neither HMMA nor LDG.128

    def test_spill(self):
        listing = Listing()
        listing.code[GEMM].append("@P1 STL.64 [R1+0x8], R2")
        self.fails(listing, "gemm<64>, sm_100: uses local memory (stack 0 bytes, 1 LDL and STL)")
        listing = Listing()
        listing.stack[SPAN] = 40
        self.fails(listing, "span, sm_80: uses local memory (stack 40 bytes, 0 LDL and STL)")

    def test_no_tensor_cores(self):
        listing = Listing()
        listing.code[GEMM] = [text for text in MATRIX_CODE if not text.startswith("HMMA")]
        self.fails(listing, "has 0 tensor-core instructions and 1 matrix loads")

    def test_narrow(self):
        listing = Listing()
        listing.code[SPAN][0] = "LDG.E.64 R4, [R2.64]"
        self.fails(listing, "span, sm_90: has no LDG.128")
        listing = Listing()
        listing.code[SPAN][1] = "STG.E.U16 [R2.64], R4"
        self.fails(listing, "span, sm_80: has no STG.128")

    def test_table_is_complete(self):
        listing = Listing()
        listing.code["_Z5otherPf"] = list(SPAN_CODE)
        listing.threads["_Z5otherPf"], listing.stack["_Z5otherPf"] = 32, 0
        self.fails(listing, "other: 0 rows of the table")
        listing = Listing()
        del listing.code[SPAN]
        self.fails(listing, "span: in the table of bench/gpu_static.py, but not in")
        module = load()
        module.RULES += (module.Rule(r"sp.n"),)
        self.fails(Listing(), "span: 2 rows of the table", module)

    def test_no_kernels(self):
        class Nothing:
            def write(self, folder):
                pass
        self.fails(Nothing(), "span: in the table of bench/gpu_static.py, but not in")

    def test_targets(self):
        listing = Listing()
        listing.archs = ["sm_80", "sm_100"]
        self.fails(listing, "sm_90: not every kernel is compiled for it")
        listing = Listing()
        listing.ptx = ""
        self.fails(listing, "there is no PTX")

    def test_threads(self):
        listing = Listing()
        listing.threads[SPAN] = 0
        self.fails(listing, "threads of a block unknown")


if __name__ == "__main__":
    unittest.main()
