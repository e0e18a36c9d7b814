/* SPDX-License-Identifier: MIT
 *
 * Open MPI's side of bench/cluster, which compiles it with mpicc and starts it with mpirun. */
#include "config.h"

#include "bench/cluster_loop.h"

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
    struct cluster_loop loop = {0, 0, reduce_floats, wait_all};
    float *buffer = malloc(CLUSTER_LARGEST);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &loop.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &loop.size);
    int result = buffer && argc == 2 ? cluster_serve(&loop, buffer, argv[1]) : 1;
    MPI_Finalize();
    free(buffer);
    return result;
}
