#!/bin/bash
# run.sh - installs what is missing from Debian, builds the default preset, runs the tests.
#
#   tests/run.sh                        everything but what is labelled long
#   tests/run.sh -L long                that
#   tests/run.sh -L mpi -R resume       only some: arguments go to ctest
#   tests/run.sh --install-only         packages only
#   tests/run.sh --no-install           no packages
#
# Nothing outside Debian is needed; what does need PyPI is tests/oracles.sh.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=launch/packages.sh
. launch/packages.sh

case ${1:-} in
--install-only)
    tern_install_packages "${TERN_PACKAGES_BUILD[@]}" "${TERN_PACKAGES_TEST[@]}" "${TERN_PACKAGES_TEXT[@]}"
    exit
    ;;
--no-install)
    shift
    ;;
*)
    tern_install_packages "${TERN_PACKAGES_BUILD[@]}" "${TERN_PACKAGES_TEST[@]}" "${TERN_PACKAGES_TEXT[@]}"
    ;;
esac

# What mpirun needs to run quietly as root, in a container, and with more ranks than cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl_base_warn_component_unused=0

cmake --preset default >build-configure.log 2>&1 || { cat build-configure.log >&2; exit 1; }
rm -f build-configure.log
cmake --build --preset default
[ $# -ne 0 ] || set -- -LE long
ctest --test-dir build/default --output-on-failure --no-tests=error -j $((2 * $(nproc))) "$@" # many mostly wait
