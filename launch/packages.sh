# packages.sh - which Debian packages Tern needs, in one table, and how to install them. Sourced by the scripts that build.
# shellcheck shell=bash disable=SC2034

TERN_PACKAGES_BUILD=(
    gcc g++ libc6-dev cmake ninja-build pkg-config   # compiler and build (CMake's own checks want g++)
    libopenmpi-dev openmpi-bin                       # ranks: the MPI plugin and mpirun
    libhdf5-dev libzstd-dev libxxhash-dev            # checkpoints
    libjansson-dev libyaml-dev                       # JSON, configuration
    node-llhttp libssl-dev                           # the HTTP server: its parser (C sources), TLS
    libcurl4-openssl-dev                             # object stores, metadata servers
)
TERN_PACKAGES_TEXT=(bible-kjv)                       # 31,102 lines of English, 4.4 MB
TERN_PACKAGES_TEST=(libcmocka-dev openssl python3-h5py python3-jsonschema python3-numpy)
TERN_PACKAGES_HOSTS=(iproute2 munge openssh-client openssh-server procps slurm-client slurmctld slurmd) # tests on hosts made of namespaces
TERN_PACKAGES_CI=(chromium chromium-driver clang libclang-rt-14-dev clang-format python3-venv ca-certificates)

# tern_install_packages NAME...: installs those that are missing; asks for nothing; says which and how on failure.
tern_install_packages() {
    local name missing=() as_root=()
    for name in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
    done
    [ ${#missing[@]} -ne 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "These Debian packages are missing, and there is no sudo to install them with. As root, run:" >&2
            echo "    apt-get update && apt-get install ${missing[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    if ! command -v apt-get >/dev/null; then
        echo "There is no apt-get here; install what Debian 12 calls: ${missing[*]}" >&2
        return 1
    fi
    echo "Installing Debian packages: ${missing[*]}"
    local log
    log=$(mktemp)
    if ! { "${as_root[@]}" apt-get update -q &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; } \
        </dev/null >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "apt-get failed; the whole of what it said is in $log" >&2
        return 1
    fi
    rm -f "$log"
}
