#!/bin/sh
# drift.sh - the stand-in headers say what the toolkit's own headers say: the same numbers, sizes, fields and prototypes.
#
#   drift.sh CC TOOLKIT-INCLUDE-FOLDER        exit 77 when there is no toolkit in that folder
set -eu
cc=$1
toolkit=$2
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -f "$toolkit/cuda_runtime.h" ]; then
    echo "no cuda_runtime.h in '$toolkit': nothing to compare with"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
standins="-DTERN_CUSIM -I$here/include"

# numbers HEADER...: a program that prints every enumerator and the size of every type that the stand-ins define
numbers() {
    echo '#include <cublasLt.h>'
    echo '#include <cuda_runtime.h>'
    echo '#include <stdio.h>'
    echo 'int main(void) {'
    sed -n 's/^ *\([A-Za-z][A-Za-z0-9_]*\) = [-0-9x]*,\{0,1\}$/printf("%s %lld\\n", "\1", (long long)\1);/p' "$@"
    # types by typedef at the end of a struct; cudaDeviceProp has fewer fields than the real one
    sed -n 's/^} \([A-Za-z][A-Za-z0-9_]*\);$/printf("sizeof %s %zu\\n", "\1", sizeof(\1));/p' "$@"
    printf '%s\n' 'printf("sizeof cudaPointerAttributes %zu\n", sizeof(struct cudaPointerAttributes));'
    echo 'return 0; }'
}

# again HEADER...: the toolkit's headers, and then every prototype and every field of the stand-ins once more
again() {
    echo '#include <cublasLt.h>'
    echo '#include <cuda_runtime.h>'
    cat "$@" | awk '
        /^[a-z][A-Za-z_ ]*[ *][A-Za-z0-9]+\(/ && !/^(static|typedef|template)/ { is_inside = 1 }
        is_inside { print }
        /;/ { is_inside = 0 }
        /^struct [A-Za-z]+ \{/ { name = $2 }
        name != "" && /^    .*;$/ {
            line = $0
            sub(/;.*/, "", line)
            dims = line ~ /\[/ ? substr(line, index(line, "[")) : ""
            sub(/\[.*/, "", line)
            field = line
            sub(/.*[ *]/, "", field)
            type = substr(line, 1, length(line) - length(field))
            printf "_Static_assert(__builtin_types_compatible_p(__typeof__(((struct %s *)0)->%s),%s%s), \"%s.%s\");\n",
                name, field, type, dims, name, field
        }
        /^}/ { name = "" }'
}

cd "$here/include"
numbers cuda_runtime.h cublasLt.h >"$work/numbers.c"
$cc $standins "$work/numbers.c" -o "$work/mine"
$cc -isystem "$toolkit" "$work/numbers.c" -o "$work/theirs"
"$work/mine" >"$work/mine.txt"
"$work/theirs" >"$work/theirs.txt"
count=$(wc -l <"$work/mine.txt")
if [ "$count" -lt 100 ]; then
    echo "only $count numbers were found in the stand-in headers" >&2
    exit 1
fi
if ! diff "$work/mine.txt" "$work/theirs.txt"; then
    echo "the stand-ins (<) and the toolkit (>) differ in these numbers" >&2
    exit 1
fi
again cuda_runtime.h cusim_functions.h cublasLt.h >"$work/again.c"
prototypes=$(grep -c '(.*' "$work/again.c")
if [ "$prototypes" -lt 60 ]; then
    echo "only $prototypes lines of prototypes were found in the stand-in headers" >&2
    exit 1
fi
if ! $cc -std=gnu17 -isystem "$toolkit" -fsyntax-only "$work/again.c"; then
    echo "the toolkit declares these otherwise than the stand-ins" >&2
    exit 1
fi
echo "$count numbers and sizes agree, and all prototypes and fields"
