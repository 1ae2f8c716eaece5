#!/bin/sh
# include_edges.sh - fails on an include that goes up or sideways, on a third-party header outside its owner, on an
# allocation behind the allocator's back, and on what only nvcc understands outside of the headers that hide it.
#
#   include_edges.sh ROOT        one line for each finding, "FILE:LINE: ..."; exit 1 if there are any
#
# An include goes down or stays in its module:
#   launch -> runtime -> models -> kernels | comm | io -> runtime/base
set -eu
cd "${1:?usage: include_edges.sh ROOT}"

find launch runtime models kernels comm io bench \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null |
    LC_ALL=C sort | while IFS= read -r file; do
    # What a library hands out is given back to it by free: realpath and jansson's writer.
    foreign=0
    if grep -qE '(realpath|json_dumps) ?\(' "$file"; then
        foreign=1
    fi
    awk -v foreign="$foreign" '
    # The module that a root-relative path belongs to, "" if none.
    function module_of(path, parts) {
        split(path, parts, "/")
        if (parts[1] == "runtime" && parts[2] == "base") {
            return "base"
        }
        return parts[1] in level ? parts[1] : ""
    }
    function finding(text) {
        printf "%s:%d: %s\n", FILENAME, FNR, text
    }
    function owned(header, start, places,   count, list, i) {
        if (index(header, start) != 1) {
            return
        }
        count = split(places, list, " ")
        for (i = 1; i <= count; i++) {
            if (index(FILENAME, list[i]) == 1) {
                return
            }
        }
        finding("<" header "> belongs to " places " only")
    }
    BEGIN {
        level["base"] = 0
        level["kernels"] = level["comm"] = level["io"] = 1
        level["models"] = 2
        level["runtime"] = 3
        level["launch"] = 4
        level["tests"] = 5
        level["bench"] = 6 # may borrow case tables of tests; nothing that ships may
    }
    FNR == 1 {
        mine = module_of(FILENAME)
        in_comment = 0
    }
    {
        line = $0
        # Comments and texts of one line do not count, nor does what a comment of several lines holds.
        if (in_comment) {
            if (!sub(/^.*\*\//, "", line)) {
                next
            }
            in_comment = 0
        }
        include = line
        gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
        gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
        sub(/\/\/.*$/, "", line)
        if (sub(/\/\*.*$/, "", line)) {
            in_comment = 1
        }
    }
    include ~ /^[ \t]*#[ \t]*include[ \t]*"/ {
        path = include
        sub(/^[^"]*"/, "", path)
        sub(/".*$/, "", path)
        theirs = module_of(path)
        if (theirs == "") {
            finding("\"" path "\" is not relative to the root")
        } else if (theirs != mine && level[theirs] >= level[mine]) {
            finding(mine " must not include " theirs " (\"" path "\")")
        }
    }
    include ~ /^[ \t]*#[ \t]*include[ \t]*</ {
        header = include
        sub(/^[^<]*</, "", header)
        sub(/>.*$/, "", header)
        owned(header, "mpi.h", "comm/mpi/")
        owned(header, "nccl", "comm/nccl/")
        owned(header, "infiniband/", "comm/verbs/")
        owned(header, "hdf5", "io/")
        owned(header, "H5", "io/")
        owned(header, "zstd", "io/")
        owned(header, "xxhash", "io/")
        owned(header, "xxh3", "io/")
        owned(header, "pcre2", "io/")
        owned(header, "curl/", "io/")
        owned(header, "yaml.h", "runtime/base/")
        owned(header, "jansson", "io/ runtime/observe/ launch/")
        owned(header, "cuda", "kernels/cuda/ comm/nccl/ bench/")
        owned(header, "cublas", "kernels/cuda/ bench/")
        owned(header, "cusim", "kernels/cuda/target.cuh kernels/cuda/mma.cuh")
        owned(header, "oneapi/", "kernels/cpu/ bench/")
        owned(header, "dnnl", "kernels/cpu/ bench/")
        owned(header, "llhttp", "runtime/serve/http_parse.c")
        owned(header, "openssl/", "runtime/serve/http_tls.c io/")
    }
    # The kernels of kernels/cuda/ are compiled by g++, too, for the simulated CUDA.
    FILENAME ~ /^kernels\/cuda\/.*\.cuh?$/ {
        if (line ~ /<<</ && FILENAME != "kernels/cuda/target.cuh") {
            finding("a kernel is started by tern_launch of target.cuh")
        }
        if (line ~ /(^|[^A-Za-z0-9_])asm([^A-Za-z0-9_]|$)/ && FILENAME != "kernels/cuda/mma.cuh") {
            finding("PTX is in kernels/cuda/mma.cuh only")
        }
        if (line ~ /(^|[^A-Za-z0-9_])(__shared__|__constant__|__ldg|__pipeline_memcpy_async|float[234]|uint[24]|int[24]|make_float4)([^A-Za-z0-9_]|$)/ &&
            FILENAME != "kernels/cuda/target.cuh") {
            finding("not of the kernels\47 language: see kernels/cuda/target.cuh")
        }
    }
    FILENAME == "runtime/base/mem.c" {
        next
    }
    line ~ /(^|[^A-Za-z0-9_.>])(malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|memalign|strdup|strndup|v?asprintf)[ \t]*\(/ ||
    (!foreign && line ~ /(^|[^A-Za-z0-9_.>])free[ \t]*\(/) {
        finding("memory goes through runtime/base/mem.h")
    }
    ' "$file"
done >"${TMPDIR:-/tmp}/include_edges.$$"
found=$(wc -l <"${TMPDIR:-/tmp}/include_edges.$$")
cat "${TMPDIR:-/tmp}/include_edges.$$"
rm -f "${TMPDIR:-/tmp}/include_edges.$$"
[ "$found" -eq 0 ]
