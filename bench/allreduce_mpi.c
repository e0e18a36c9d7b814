/* SPDX-License-Identifier: MIT
 *
 * Open MPI's side of allreduce_perf: compiled with mpicc and started with mpirun by that program.
 */
#include "config.h"

#include "bench/allreduce_loop.h"

#include <mpi.h>

static int reduce_floats(float *buffer, size_t count)
{
    return MPI_Allreduce(MPI_IN_PLACE, buffer, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static int wait_all(void)
{
    return MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    struct loop loop = {0, 0, reduce_floats, wait_all};
    float *buffer = malloc(LOOP_LARGEST);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &loop.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &loop.size);
    int result = buffer ? loop_all(&loop, buffer, stdout) : 1;
    fflush(stdout);
    MPI_Finalize();
    free(buffer);
    return result;
}
