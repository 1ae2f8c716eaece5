"""gpu_static.py CUOBJDUMP LIBRARY - what the compiled kernels of a library use, and whether each is what it must be.

Called by gpu_static.sh. Prints a row a kernel and architecture; then every rule that is broken, a sentence each, and
ends with 1 if there is one.
"""
import collections
import os
import re
import subprocess
import sys

# What a build must hold.
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


# A kernel's rules. name: the whole demangled name, without arguments, as a regular expression.
# wide: which global accesses must be there 128 bits wide: "", "load", "store" or "load store".
# tensor: products, so matrix loads and tensor-core instructions. hot: no spilled register.
# threads: of a block, for kernels without __launch_bounds__.
Rule = collections.namedtuple("Rule", "name wide tensor hot threads", defaults=("", False, True, 0))

# Kernels with a width among their arguments have an instance of width 1, for rows that do not line up: nothing is wide
# there. Where a thread stores bf16 that it loaded as 4 f32, a store is 64 bits and a warp's 256 bytes in a row.
RULES = (
    Rule(r"(embed_fwd|glu_fwd|glu_bwd|rope)_kernel<.*, [48].*>", "load store"),
    Rule(r"(embed_fwd|glu_fwd|glu_bwd|rope|embed_(packed_)?positions|embed_chunks|bias_bwd|combine)_kernel<.*, 1(, .*)?>"),
    Rule(r"(embed_(packed_)?positions|embed_chunks)_kernel<.*, 4>", "load store"),
    # loads go to shared memory directly (LDGSTS)
    Rule(r"tern_attention_(fwd|dq|dkv)_kernel<.*>", "load store", tensor=True),
    Rule(r"tern_attention_stats_kernel", "load"),
    # f32 and odd head widths: right, not fast
    Rule(r"tern_attention_plain_(fwd|dq|dkv)_kernel<.*>"),
    # keys and values in blocks: right for every width and type, not yet fast
    Rule(r"(kv_write|paged)_kernel<.*>"),
    Rule(r"embed_parts_kernel<4>", "load store"),
    Rule(r"embed_parts_kernel<1>"),
    Rule(r"bias_bwd_kernel<.*, [48]>", "load"),  # a block's sums are a few hundred bytes
    Rule(r"sort_(count|move)_kernel"),  # of ids: 4 bytes a token
    Rule(r"norm_(fwd|bwd)_held<.*>", "load store"),
    Rule(r"norm_(fwd_streamed|bwd_rows|bwd_columns)<.*, [48]>", "load store"),
    Rule(r"norm_(fwd_streamed|bwd_rows|bwd_columns)<.*, 1>", hot=False),  # rows longer than a block holds, and odd
    Rule(r"combine_kernel<.*, [48]>", "load store"),
    # experts of a token: a warp a row of as many logits as there are experts, then counts and places. Small beside what
    # it chooses; on sm_80 two registers are kept in memory around its division, once a row
    Rule(r"route_rows_kernel<.*>", hot=False),
    Rule(r"(count_pairs|number_pairs)_kernel"),
    Rule(r"add_counts_kernel", threads=1),
    Rule(r"tern_fold_kernel"),  # partial sums of few rows
    Rule(r"cross_entropy_kernel<.*>", "load"),
    Rule(r"sumsq_kernel<.*>", "load"),
    Rule(r"clip_kernel"),  # one block, once a step: an addition waits for the one before
    Rule(r"tern_span_kernel<[48], \d, (adamw|act_fwd|act_bwd|add|cap)_op<.*>>", "load store"),
    Rule(r"tern_span_kernel<4, \d, cast_op<float, unsigned short>>", "load"),
    Rule(r"tern_span_kernel<4, \d, cast_op<unsigned short, float>>", "store"),
    # blas_side.cu: what cuBLASLt does not do itself; blocks of 32 x 8
    Rule(r"finish_kernel<.*>", "load store", threads=256),
)

# Limits of a multiprocessor (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
Limits = collections.namedtuple("Limits", "registers warps blocks shared_bytes")
LIMITS = {
    "sm_80": Limits(65536, 64, 32, 164 << 10),
    "sm_90": Limits(65536, 64, 32, 228 << 10),
    "sm_100": Limits(65536, 64, 32, 228 << 10),
}
REGISTER_UNIT = 256  # registers are given to a warp in this many
WARP_UNIT = 4  # warps that fit the registers are a multiple of this
SHARED_UNIT = 128
SHARED_RESERVED = 1 << 10  # of every block, for the system

# Instructions that are counted: column, opcode. The end of an opcode counts, since LDG is also the start of LDGSTS.
OPCODES = (
    ("HMMA", re.compile(r"(HMMA|HGMMA|UTCHMMA)(\.|$)")),
    ("LDSM", re.compile(r"LDSM(\.|$)")),
    ("LDGSTS", re.compile(r"LDGSTS\.(\S*\.)?128(\.|$)")),
    ("LDG.128", re.compile(r"LDG\.(\S*\.)?(128|ENL2\.256)(\.|$)")),
    ("STG.128", re.compile(r"STG\.(\S*\.)?(128|ENL2\.256)(\.|$)")),
    ("local", re.compile(r"(LDL|STL)(\.|$)")),
)


def number_of(arch):
    return int(re.sub(r"\D", "", arch))


class Kernel:
    """One kernel of one architecture."""

    def __init__(self, symbol, arch):
        self.symbol, self.arch = symbol, arch
        self.name = ""  # demangled
        self.registers = self.stack = self.shared = self.local = self.threads = 0
        self.count = collections.Counter()

    def occupancy(self, dynamic):
        """Share of the warps that a multiprocessor can hold, with `dynamic` bytes of dynamic shared memory a block."""
        limits = LIMITS[self.arch]
        warps = -(-self.threads // 32)
        registers = -(-self.registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
        by_registers = limits.registers // registers // WARP_UNIT * WARP_UNIT // warps
        shared = -(-(self.shared + dynamic) // SHARED_UNIT) * SHARED_UNIT + SHARED_RESERVED
        blocks = min(by_registers, limits.warps // warps, limits.blocks, limits.shared_bytes // shared)
        return blocks * warps / limits.warps


def lines(*command):
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        yield from process.stdout
        said = process.stderr.read()
    # a library without kernels is none to cuobjdump; that the table's kernels are missing is said later
    if process.returncode != 0 and "does not contain device code" not in said:
        sys.exit(f"gpu_static: '{' '.join(command)}' ended with {process.returncode}: {said}")


def read_kernels(cuobjdump, library):
    """All kernels by (symbol, arch), from three listings of the same code."""
    kernels, arch, kernel = {}, "", None

    def at(symbol):
        return kernels.setdefault((symbol, arch), Kernel(symbol, arch))

    for line in lines(cuobjdump, "--dump-resource-usage", library):
        if found := re.match(r"arch = (\S+)", line):
            arch = found[1]
        elif found := re.match(r"\s*Function (\S+):", line):
            kernel = at(found[1])
        elif "REG:" in line:
            use = {key: int(value) for key, value in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", line)}
            kernel.registers, kernel.stack, kernel.local = use["REG"], use["STACK"], use["LOCAL"]
            # from sm_90 on the system's part is in the number of a kernel that has shared memory at all
            system = SHARED_RESERVED if number_of(arch) >= 90 else 0
            kernel.shared = max(0, use["SHARED"] - system)
    for line in lines(cuobjdump, "-sass", library):
        if found := re.match(r"arch = (\S+)", line):
            arch = found[1]
        elif found := re.match(r"\s*Function : (\S+)", line):
            kernel = at(found[1])
        elif found := re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:@\S+\s+)?([A-Z]\S*)", line):
            for column, opcode in OPCODES:
                kernel.count[column] += bool(opcode.match(found[1]))
    is_threads = False
    for line in lines(cuobjdump, "-elf", library):
        if found := re.match(r"arch = (\S+)", line):
            arch = found[1]
        elif found := re.match(r"\.nv\.info\.(\S+)", line):
            kernel = at(found[1])
        elif "Attribute:" in line:
            is_threads = "EIATTR_MAX_THREADS" in line
        elif is_threads and (found := re.match(r"\s*Value:\s+(0x\S+) (0x\S+) (0x\S+)", line)):
            kernel.threads = int(found[1], 16) * int(found[2], 16) * int(found[3], 16)
    return list(kernels.values())


def name_kernels(kernels):
    symbols = "\n".join(kernel.symbol for kernel in kernels)
    done = subprocess.run(["c++filt", "-p"], input=symbols, stdout=subprocess.PIPE, text=True, check=True)
    for kernel, name in zip(kernels, done.stdout.splitlines()):
        name = name.replace("(anonymous namespace)::", "").replace("> >", ">>")
        kernel.name = re.sub(r"\((\w+|unsigned \w+)\)(?=-?\d)", "", name)  # (int)64 as 64


def read_dynamic(library):
    """Dynamic shared memory of a block by kernel name, where the launcher's own plan says it: bin/bench_gpu_shared."""
    program = os.path.join(os.path.dirname(library), "bench_gpu_shared")
    if not os.access(program, os.X_OK):
        return {}
    return {name: int(size) for name, size in (line.rsplit(None, 1) for line in lines(program))}


def rule_of(kernel, problems):
    rules = [rule for rule in RULES if re.fullmatch(rule.name, kernel.name)]
    if len(rules) != 1:
        problems.append(f"{kernel.name}: {len(rules)} rows of the table in bench/gpu_static.py name it, expected one")
        return None
    return rules[0]


def judge(kernel, rule, problems):
    def bad(sentence):
        problems.append(f"{kernel.name}, {kernel.arch}: {sentence}")

    if rule.hot and (kernel.stack or kernel.local or kernel.count["local"]):
        bad(f"uses local memory (stack {kernel.stack} bytes, {kernel.count['local']} LDL and STL), expected none")
    if rule.tensor and (kernel.count["HMMA"] == 0 or kernel.count["LDSM"] == 0):
        bad(f"has {kernel.count['HMMA']} tensor-core instructions and {kernel.count['LDSM']} matrix loads, expected both")
    for access, columns in (("load", ("LDG.128", "LDGSTS")), ("store", ("STG.128",))):
        if access in rule.wide.split() and not any(kernel.count[column] for column in columns):
            bad(f"has no {columns[0]}: its {access}s are narrower than 128 bits")
    if kernel.threads == 0:
        bad("threads of a block unknown: give it __launch_bounds__, or a number in the table")


def print_row(kernel, dynamic):
    occupancy = f"{100 * kernel.occupancy(dynamic):.0f} %" if kernel.threads and kernel.arch in LIMITS else "?"
    print(f"{kernel.name:72} {kernel.arch:6} {kernel.registers:4} {kernel.threads:5} {kernel.shared + dynamic:7} "
          f"{kernel.stack + kernel.local:5} " + " ".join(f"{kernel.count[c]:7}" for c, _ in OPCODES) + f" {occupancy:>6}")


def main():
    cuobjdump, library = sys.argv[1:]
    problems = []
    kernels = read_kernels(cuobjdump, library)
    name_kernels(kernels)
    dynamic = read_dynamic(library)
    kernels.sort(key=lambda k: (k.name, number_of(k.arch)))
    print(f"{'kernel':72} {'arch':6} {'regs':>4} {'block':>5} {'shared':>7} {'stack':>5} "
          + " ".join(f"{c:>7}" for c, _ in OPCODES) + f" {'occup.':>6}")
    rules = {name: rule_of(next(k for k in kernels if k.name == name), problems)
             for name in sorted({k.name for k in kernels})}
    for kernel in kernels:
        rule = rules[kernel.name]
        if rule is not None:
            kernel.threads = kernel.threads or rule.threads
            judge(kernel, rule, problems)
        print_row(kernel, dynamic.get(kernel.name, 0))
    for rule in RULES:
        if rule not in rules.values():
            problems.append(f"{rule.name}: in the table of bench/gpu_static.py, but not in {library}")
    for arch in ARCHITECTURES:
        if any((k.name, arch) not in {(k.name, k.arch) for k in kernels} for k in kernels):
            problems.append(f"{arch}: not every kernel is compiled for it")
    if kernels and not any(".ptx" in line for line in lines(cuobjdump, "--list-ptx", library)):
        problems.append("there is no PTX, for GPUs newer than the newest target")
    for problem in problems:
        print(f"gpu_static: {problem}", file=sys.stderr)
    print(f"{len(rules)} kernels, {len(kernels)} with their architectures, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
