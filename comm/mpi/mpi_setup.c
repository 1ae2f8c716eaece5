/* mpi_setup.c - environment defaults for Open MPI, after a look at what this machine allows. */
#include "comm/mpi/mpi_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Between ranks of a host, Open MPI copies large messages straight out of the peer's memory with
 * process_vm_readv. Containers often forbid the call (seccomp, ptrace scope); Open MPI 4 finds out in the
 * middle of a message and gives up. So: can a child, which is no ancestor of ours, read our memory? */
static int can_read_peers(void)
{
    static char secret[8] = "tern ok";
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0,
          0); /* as the library does; fails without Yama */
    pid_t parent = getpid();
    pid_t child = fork();
    if (child < 0) {
        return 0;
    }
    if (child == 0) {
        char found[sizeof secret] = "";
        struct iovec local = {found, sizeof found};
        struct iovec remote = {secret, sizeof secret};
        ssize_t n = process_vm_readv(parent, &local, 1, &remote, 1, 0);
        _exit(n == (ssize_t)sizeof found && memcmp(found, secret, sizeof found) == 0 ? 0 : 1);
    }
    int status = 1;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void tern_mpi_setup_environment(void)
{
    if (getenv("OMPI_MCA_btl_vader_single_copy_mechanism") == NULL && !can_read_peers()) {
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    }
    /* "There was an error initializing an OpenFabrics device" and the like, on machines without one. */
    setenv("OMPI_MCA_btl_base_warn_component_unused", "0", 0);
}
