#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun-cluster(7): mpirun's command, over hosts in network namespaces.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/launcher/cluster_docs.inc"
. "$here/tests/launcher/cluster/hosts.inc"
. "$here/tests/launcher/cluster/open_mpi.inc"
need_commands
open_mpi_up 2

# mpirun as an administrator sets it up: it reaches hosts without ssh, and passes on the environment.
a_command mpirun "exec $mpirun -x PATH -x HOME -x DDP_PLUGIN_PATH -x CLUSTER_HOSTS -x PET_NPROC_PER_NODE \"\$@\""
block sh mpirun | sed "s/node0,node1/$(host 0),$(host 1)/" >"$work/script"
expect mpirun 0 '3 steps in' timeout -k 5 $((60 * patience)) "$on" "$(host 0)" sh "$work/script"
is_one_job mpirun 2
hosts_empty mpirun
finish
