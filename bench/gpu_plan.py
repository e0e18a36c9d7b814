# SPDX-License-Identifier: MIT
"""What to do when a GPU is at hand for half an hour, in five steps of less than 10 minutes each: `bench/gpu plan`.

Needs Python, the source tree and a build, or what --pack DIR made of one (then --build DIR): not make and not autotools, whose
rules would look at the times of files that were copied.
"""
import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from gpu_results import Budget, gpt2_size, libraries, write_tokens

HERE = os.path.dirname(os.path.abspath(__file__))
LIMITS = (300, 480, 330, 360, 300)  # seconds of a step: half an hour in all
# All unit tests of CUDA.
TESTS = ("check_cuda_kernels", "check_cuda_device", "check_cuda_graph", "check_cuda_stage", "check_cuda_products",
         "check_cuda_failures", "check_comm_nccl", "check_comm_nccl_nodes", "check_comm_nccl_order", "check_comm_nccl_memory")
TITLES = ("workers that share the GPU; unit tests, with and without cuDNN",
          "speed of kernels and of GPT-2; without CUDA graphs; a trace; cuBLASLt's own log",
          "attention and convolution by each way; start, MLP, ResNet",
          "ncu on the row kernels; compute-sanitizer on the tests of kernels",
          "two and three ranks on one GPU: --zero 0, --zero 1, --fast, the same bits, hangs")


def program(args, name):
    """Past libtool's shell script, which knows the folder in which it was built."""
    inner = os.path.join(args.build, ".libs", os.path.basename(name))
    return inner if os.access(inner, os.X_OK) else os.path.join(args.build, name)


class Step:
    """Commands, one after another: what each is, its seconds at most, its environment, its words."""

    def __init__(self, args, work):
        self.args, self.work, self.commands = args, work, []
        self.source = os.path.dirname(HERE)
        self.slack = 10 if args.tiny else 1  # limits are for a GPU that is lent for half an hour
        self.environment = {"LD_LIBRARY_PATH": libraries(args), "DDP_PLUGIN_PATH": args.plugins, "srcdir": self.source,
                            "abs_top_builddir": args.build, "CK_TIMEOUT_MULTIPLIER": str(3 * self.slack)}
        if "cudasim" not in args.plugins:
            self.environment["DDP_TEST_PLUGINS"] = args.plugins

    def program(self, name):
        return program(self.args, name)

    def add(self, seconds, *words, **environment):
        self.commands.append((seconds, environment, list(words)))

    def test(self, seconds, name, **environment):
        if name.endswith(".sh"):
            self.add(seconds, "sh", os.path.join(self.source, "tests", "cuda", name), **environment)
        else:
            self.add(seconds, self.program(name), **environment)

    def bench(self, seconds, parts, *words):
        tiny = ["--tiny"] if self.args.tiny else []
        self.add(seconds + 60, sys.executable, os.path.join(HERE, "gpu"), "--build", self.args.build, "--plugins",
                 self.args.plugins, "--python", self.args.python, "--results", self.args.results, "--only", parts, "--budget",
                 str(seconds), *words, *tiny)

    def gpt2(self, *words):
        """Of trainer, all of whose numbers are small with --tiny."""
        batch, length = ("2", "16") if self.args.tiny else ("64", "1024")
        return [self.program("trainer"), "--device", "cuda", "--model", "gpt2", *gpt2_size(self.args.tiny), "--batch-size",
                batch, "--seq-len", length, "--data", os.path.join(self.work, "tokens.bin"), "--dtype", "bf16", "--optimizer",
                "adamw", "--no-eval", *words]

    def result(self, name):
        return os.path.join(self.args.results, name)


def step_tests(step):
    names = TESTS[1:2] if step.args.tiny else TESTS
    step.test(30, "gpu_probe" if "cudasim" not in step.args.plugins else names[0])
    for workers in (2,) if step.args.tiny else (2, 3, 4):  # on an H100 four did not end; two did
        step.add(20, step.program("ddprun"), "--nproc", str(workers), "--oversubscribe", step.program("trainer"), "--device",
                 "cuda", "--model", "article", "--epochs", "1", DDP_LOG="debug", NCCL_DEBUG="INFO")
    alone = ("check_cuda_kernels", "check_cuda_graph")  # in one process, which sets up the GPU once
    for name in names:
        step.test(120, name, **({"CK_FORK": "no"} if name in alone else {}))
    for name in names[:1] if step.args.tiny else alone:
        step.test(120, name, DDP_CUDNN="0", **({"CK_FORK": "no"} if name in alone else {}))


def step_speed(step):
    step.bench(370, "kernels,gpt2,variants", "--rounds", "1" if step.args.tiny else "2")
    step.add(60, *step.gpt2("--steps", "8", "--trace", step.result("trace.json")))
    step.add(60, *step.gpt2("--steps", "1"), CUBLASLT_LOG_LEVEL="5", CUBLASLT_LOG_FILE=step.result("cublaslt.txt"),
             DDP_LOG="debug")


def step_sizes(step):
    step.bench(270, "attention,convolution,start,mlp,resnet", "--rounds", "1" if step.args.tiny else "2")


def step_profile(step):
    size = "1" if step.args.tiny else "64"
    metrics = ("gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread,"
               "sm__warps_active.avg.pct_of_peak_sustained_active")
    step.add(110, "ncu", "--clock-control", "none", "--metrics", metrics,
             "--kernel-name-base", "demangled", "--kernel-name",
             "regex:entropy|layer_norm|column|embedding|adamw|elements", "--launch-count", "600", "--csv", "--log-file",
             step.result("ncu.csv"), step.program("bench/kernels_perf"), "--device", "cuda", "--only", "memory", "--mebibytes",
             size)
    for tool in ("memcheck", "racecheck"):
        step.test(120, "gpu_sanitizer.sh", SANITIZER_TOOLS=tool)


def step_ranks(step):
    small = ["--layers", "2", "--heads", "2" if step.args.tiny else "4", "--channels", "64" if step.args.tiny else "256",
             "--seq-len", "8" if step.args.tiny else "128", "--batch-size", "1" if step.args.tiny else "8", "--steps",
             "2" if step.args.tiny else "20"]
    for ranks, shards in ((2, 8), (3, 6)):
        def train(workers, name, *more):
            launch = [step.program("ddprun"), "--nproc", str(workers), "--oversubscribe"] if workers > 1 else []
            batch = shards * (1 if step.args.tiny else 8)
            saved = os.path.join(step.work, name)
            step.add(60, *launch, *step.gpt2(*small, "--global-batch", str(batch), "--save", saved, *more))
        train(1, "one")
        for name, more in (("zero0", ["--zero", "0"]), ("zero1", ["--zero", "1"])):
            train(ranks, name, *more)
            step.add(10, "cmp", os.path.join(step.work, "one"), os.path.join(step.work, name))
        train(ranks, "fast", "--fast")
    for name in () if step.args.tiny else ("cuda_same_bits.sh", "cuda_collectives.sh", "cuda_hangs.sh"):
        step.test(80, name)


STEPS = (step_tests, step_speed, step_sizes, step_profile, step_ranks)


def shown(step, command):
    """As a line for a shell."""
    seconds, environment, words = command
    settings = "".join(f"{name}={shlex.quote(value)} " for name, value in environment.items())
    return f"{settings}timeout {seconds} {' '.join(shlex.quote(word) for word in words)}"


def run_one(step, command, log, left):
    """What became of a command, whose output is in the log."""
    seconds, environment, words = command
    log.write(f"\n$ {shown(step, command)}\n")
    log.flush()
    seconds *= step.slack
    begin = time.monotonic()
    if not os.path.isabs(words[0]) and not shutil.which(words[0]):
        return f"skipped: {words[0]} is not installed"
    if left < 1:
        return "left out: no time is left"
    try:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, cwd=step.args.build, start_new_session=True,
                                   env={**os.environ, **step.environment, **environment})
    except OSError as reason:
        return f"FAILED: {reason}"
    try:
        code = process.wait(min(seconds, left))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"FAILED: not done after {time.monotonic() - begin:.0f} s"
    took = f"{time.monotonic() - begin:.0f} s"
    return f"ok, {took}" if code == 0 else f"skipped, {took}" if code == 77 else f"FAILED with {code}, {took}"


def run_step(number, args):
    """Runs all commands of a step, whatever becomes of them; False if one failed."""
    os.makedirs(args.results, exist_ok=True)
    path, ends = os.path.join(args.results, f"plan-{number}.txt"), []
    with tempfile.TemporaryDirectory() as work, open(path, "w") as log:
        step = Step(args, work)
        budget = Budget(LIMITS[number - 1] * step.slack)
        STEPS[number - 1](step)
        write_tokens(os.path.join(work, "tokens.bin"), 4096 if args.tiny else 64 * 1024 * 8 + 1, args.tiny)
        for command in step.commands:
            end = run_one(step, command, log, budget.left())
            ends.append(f"{end:<24} {shown(step, command)[:150]}")
            print(f"step {number}: {ends[-1]}", flush=True)
        log.write("\n" + "\n".join(ends) + "\n")
    print(f"step {number}: the output is in {path}", flush=True)
    return not any(end.startswith("FAILED") for end in ends)


def print_plan(args):
    print(f"In {args.build}, with these set:")
    for name, value in Step(args, "$WORK").environment.items():
        print(f"  export {name}={shlex.quote(value)}")
    for number, title in enumerate(TITLES, 1):
        step = Step(args, "$WORK")
        STEPS[number - 1](step)
        print(f"\n{number}. {title}\n   bench/gpu plan --run {number} runs, for {LIMITS[number - 1]} s at most:")
        for command in step.commands:
            print(f"   {shown(step, command)}")
    print(f"\n{sum(LIMITS) / 60:.1f} minutes in all. Results are in {args.results}: commit them.")


# What `make check-gpu` and the steps run, and libraries that every machine with CUDA has.
PROGRAMS = TESTS + ("trainer", "ddprun", "gpu_probe", "own_data_tool", "frozen_client", "hf_llama_tool", "hooks_client",
                    "loop_client", "image_tool", "examples/own_loop", "examples/own_op", "bench/kernels_perf", "bench/gpu_allreduce")
LIBRARIES = ("libddp.so.0", "libtested.so", "libfake_nvml.so")
COMMON = r"(linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|cuda|cudart|cublas|cublasLt|nccl|cudnn|nvidia-ml))[-.]"


def pack(args):
    """Copies what the steps need, without symbols, into a folder that can be carried to another machine."""
    plugins = os.path.join(args.pack, os.path.relpath(args.plugins, args.build))
    pairs = [(program(args, name), os.path.join(args.pack, name)) for name in PROGRAMS]
    pairs += [(os.path.join(args.build, ".libs", name), os.path.join(args.pack, ".libs", name)) for name in LIBRARIES]
    pairs.append((os.path.join(args.plugins, "libddp-cuda.so"), os.path.join(plugins, "libddp-cuda.so")))
    missing = [source for source, _ in pairs if not os.path.exists(source)]
    pairs = [(source, to) for source, to in pairs if source not in missing]
    seen = dict(pairs)
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries(args)}
    for source in list(seen):
        out = subprocess.run(["ldd", source], capture_output=True, text=True, env=environment).stdout
        for name, path in re.findall(r"(\S+) => (/\S+)", out):
            if not re.match(COMMON, name) and not os.path.exists(os.path.join(args.build, ".libs", name)):
                seen[path] = os.path.join(args.pack, ".libs", name)
    for source, to in seen.items():
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(source, to)
        subprocess.run(["strip", "--strip-unneeded", to], stderr=subprocess.DEVNULL)
    size = sum(os.path.getsize(to) for to in seen.values()) / 2**20
    print(f"{args.pack}: {len(seen)} files, {size:.1f} MiB" + "".join(f"\nnot there: {source}" for source in missing))
    print(f"There: python3 bench/gpu plan --build {args.pack} --run N --results DIR")


def main(words):
    parser = argparse.ArgumentParser(prog="bench/gpu plan", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", choices=[*map(str, range(1, len(STEPS) + 1)), "all"], help="runs a step, or all")
    parser.add_argument("--results", default=os.path.join(HERE, "results"), help="where outputs go (default: results here)")
    parser.add_argument("--build", default=os.getcwd(), help="where it was built (default: here)")
    parser.add_argument("--plugins", help="folder of libddp-cuda.so (default: BUILD/.libs)")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch (default: this one)")
    parser.add_argument("--pack", metavar="DIR", help="copies what the steps need of the build into a folder to be carried")
    parser.add_argument("--tiny", action="store_true", help="sizes that tell nothing, to see that it works")
    args = parser.parse_args(words)
    args.build, args.results = os.path.abspath(args.build), os.path.abspath(args.results)
    args.plugins = os.path.abspath(args.plugins or os.path.join(args.build, ".libs"))
    if args.pack or not args.run:
        (pack if args.pack else print_plan)(args)
        return 0
    numbers = range(1, len(STEPS) + 1) if args.run == "all" else [int(args.run)]
    return 0 if all([run_step(number, args) for number in numbers]) else 1
