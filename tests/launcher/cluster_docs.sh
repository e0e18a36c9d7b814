#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun-cluster(7): what needs no scheduler is run on this machine, each host of the page being 127.0.0.1.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/launcher/cluster_docs.inc"
need_commands

# Programs that reach another host: here a shell in the home directory.
a_command ssh 'shift; cd && exec sh -c "$*"'
a_command hostname 'echo "${DOCS_HOST:-node0}"'
a_command pdsh 'for host in node0 node1; do DOCS_HOST=$host sh -c "$3" & pids="$pids $!"; done
code=0; for pid in $pids; do wait $pid || code=$?; done; exit $code'

# A port that nothing uses: the page's own may be taken.
free_port() {
    PET_MASTER_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    export PET_MASTER_PORT
}
command -v python3 >/dev/null || skip "python3 is not installed"

# by_hand NAME WORKERS
by_hand() {
    free_port
    block sh "$1" | sed 's/--master-addr node0/--master-addr 127.0.0.1/' >"$work/script"
    expect "$1" 0 '3 steps in' sh "$work/script"
    is_one_job "$1" "$2"
}
expect "a key" 0 '' sh -c "$(block sh key)"
[ "$(stat -c %a "$HOME/.ddprun.key")" = 600 ] || fail "a key: others may read it"
by_hand ssh 2
by_hand pdsh 2
by_hand local 4

# Kubernetes: what the pods run. PyYAML reads the manifest, where it is there.
block yaml kubernetes >"$work/manifest"
sed -n '/- >-/,/env:/{/- >-/d;/env:/d;p}' "$work/manifest" | tr -s ' \n' '  ' |
    sed "s/train-0.train/127.0.0.1/; s,/run1,$work/run1," >"$work/pod"
free_port
cat >"$work/pods" <<'END'
for JOB_COMPLETION_INDEX in 1 0; do
    export JOB_COMPLETION_INDEX
    sh "$1/pod" & pids="$pids $!"
done
for pid in $pids; do wait $pid || exit; done
END
expect "pods" 0 '3 steps in' env DDPRUN_KEY=a-key-of-this-test-only sh "$work/pods" "$work"
python=
for candidate in python3 /usr/bin/python3; do
    [ -n "$python" ] || ! $candidate -c 'import yaml' 2>/dev/null || python=$candidate
done
if [ -n "$python" ]; then
    expect "the manifest" 0 '^Service Job$' $python - "$work/manifest" <<'END'
import sys, yaml
with open(sys.argv[1]) as file:
    service, job = yaml.safe_load_all(file)
pod = job["spec"]["template"]["spec"]
assert service["metadata"]["name"] == pod["subdomain"] and service["spec"]["selector"]["job-name"] == job["metadata"]["name"]
assert service["spec"]["clusterIP"] == "None" and job["spec"]["completionMode"] == "Indexed"
command = pod["containers"][0]["command"]
assert f"--nnodes {job['spec']['completions']} " in command[2] and job["spec"]["parallelism"] == job["spec"]["completions"]
assert f"--master-addr {job['metadata']['name']}-0.{service['metadata']['name']} " in command[2] and "\n" not in command[2]
print(service["kind"], job["kind"])
END
else
    not_run "the manifest: no Python here has PyYAML"
fi
finish
