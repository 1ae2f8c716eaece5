/* mpi_impl.h - the inside of the MPI plugin. */
#ifndef TERN_COMM_MPI_MPI_IMPL_H
#define TERN_COMM_MPI_MPI_IMPL_H

/* Before MPI_Init: sets what the MPI library should do differently here, as environment variables that
 * the user has not set. */
void tern_mpi_setup_environment(void);

#endif
