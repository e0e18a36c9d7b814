#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What an all-reduce over nodes costs: fitted to two nodes, checked on four, and then asked about more; see bench/README.

usage: cluster_model.py FILE        (FILE: what bench/cluster --table allreduce --json FILE has written)

N nodes with W workers each sum S bytes. Inside a node each worker sums its slice, outside worker l of each node exchanges that
slice with worker l of the others, in messages of up to 1 MiB to each owner:

    T = a + m o + max(wire, cpu)        m     messages that a worker sends: N - 1 up to 16 KiB, where all get everything;
                                              else 2 (N - 1) ceil(S / (W N 1 MiB))
                                        wire  bytes that a node sends / (e B): 2 (N - 1)/N S, or (N - 1) S up to 16 KiB
                                        cpu   p x those bytes / cores + c S: memory and the network's software

a, c are the node's own (fitted to one node of two workers where the file has one), o is the price of a message, e the share of
the rate B that is left after headers, p the processor time of a byte that is sent, summed and received.
"""
import json
import math
import re
import sys

MIB = 1 << 20
SMALL = 16 << 10
BYTES_PER_S = {"1gbit": 125e6, "10gbit": 1250e6, "100gbit": 12500e6}
SIZES = {"4 B": 4, "64 KiB": 1 << 16, "1 MiB": MIB, "16 MiB": 16 * MIB, "64 MiB": 64 * MIB}
PAYLOAD = 1448 / 1514  # of TCP in frames of Ethernet, at most
GRADIENTS = 4 * 124439808  # bytes, GPT-2 124M in float32


def messages(nodes, workers, size):
    return nodes - 1 if size <= SMALL else 2 * (nodes - 1) * math.ceil(size / (workers * nodes * MIB))


def sent(nodes, size):
    """Bytes that one node sends, and as many that it receives."""
    return (nodes - 1) * size if size <= SMALL else 2 * (nodes - 1) / nodes * size


def predict(model, nodes, workers, size, rate, cores):
    """Seconds. cores: how many drive the wire of one node."""
    wire = sent(nodes, size) / (model["e"] * rate) if nodes > 1 else 0
    cpu = model["p"] * sent(nodes, size) / cores + model["c"] * size
    return model["a"] + messages(nodes, workers, size) * model["o"] + max(wire, cpu)


def points(table):
    """(nodes, workers, bytes, bytes/s, seconds) of our side."""
    found = []
    for name, sides in table.items():
        nodes, workers, rate = re.fullmatch(r"(\d+)x(\d+) (\w+)", name).groups()
        for label, figures in sides.get("ours", {}).items():
            found.append((int(nodes), int(workers), SIZES[label], BYTES_PER_S.get(rate, math.inf), figures["median"]))
    return found


def cores_of(machine, nodes, workers):
    """All nodes of the measurement share this machine's cores."""
    return min(workers, machine / nodes)


def cost(model, some, machine):
    """Mean square of the logarithm of predicted / measured."""
    return sum(math.log(predict(model, n, w, size, rate, cores_of(machine, n, w)) / t) ** 2
               for n, w, size, rate, t in some) / len(some)


def fit(start, names, some, machine):
    """Steps up and down along each parameter, ever smaller ones."""
    best, at, step = dict(start), cost(start, some, machine), 2.0
    while step > 1.001:
        moved = False
        for name in names:
            for factor in (step, 1 / step):
                tried = {**best, name: best[name] * factor}
                if tried["e"] <= PAYLOAD and (value := cost(tried, some, machine)) < at:
                    best, at, moved = tried, value, True
        if not moved:
            step = math.sqrt(step)
    return best


def fit_two_nodes(all_points, machine):
    model = {"a": 1e-6, "o": 1e-5, "e": 0.95, "p": 1e-9, "c": 1e-10}
    one, two = [x for x in all_points if x[0] == 1], [x for x in all_points if x[0] == 2]
    if not two:
        raise SystemExit("cluster_model.py: the file has no figures of two nodes")
    if one:
        model = fit(model, ("a", "c"), one, machine)
    return fit(model, ("o", "e", "p") if one else ("a", "o", "e", "p", "c"), two, machine)


def print_check(model, all_points, machine):
    print(f"{'nodes x workers, wire':24} {'bytes':>9} {'measured':>11} {'model':>11} {'error':>7}")
    for nodes, workers, size, rate, seconds in sorted(all_points):
        value = predict(model, nodes, workers, size, rate, cores_of(machine, nodes, workers))
        wire = "" if nodes == 1 else "no limit" if rate == math.inf else f"{rate * 8e-9:g} Gbit/s"
        part = "fitted" if nodes < 3 else "CHECKED"
        print(f"{f'{nodes} x {workers}, {wire}':24} {size:9} {seconds * 1e3:8.3f} ms {value * 1e3:8.3f} ms"
              f" {100 * (value / seconds - 1):+6.0f} %  {part}")
    for label, some in (("all sizes", all_points), ("1 MiB and more", [x for x in all_points if x[2] >= MIB])):
        for nodes in sorted({x[0] for x in some}):
            errors = [abs(predict(model, *x[:4], cores_of(machine, *x[:2])) / x[4] - 1) for x in some if x[0] == nodes]
            print(f"mean error, {nodes} node{'s' * (nodes > 1)}, {label}: {100 * sum(errors) / len(errors):.0f} %")


def print_forecast(model, step, workers):
    """GPT-2 124M over more nodes."""
    print(f"\nGPT-2 124M, {GRADIENTS / 1e6:.0f} MB of gradients a step, {workers} workers a node, a step of {step:g} s without"
          f" the exchange:\nms of the exchange; share of the speed that is left without overlap / if backward (2/3) hides it")
    print(f"{'nodes':>6}" + "".join(f"{name:>26}" for name in BYTES_PER_S))
    for nodes in (2, 4, 8, 64, 1024):
        row = ""
        for rate in BYTES_PER_S.values():
            seconds = predict(model, nodes, workers, GRADIENTS, rate, workers)
            hidden = max(0, seconds - 2 / 3 * step)
            text = f"{seconds * 1e3:.0f} ms {100 * step / (step + seconds):.0f} / {100 * step / (step + hidden):.0f} %"
            row += f"{text:>26}"
        print(f"{nodes:6}{row}")


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__.split("\n\n")[1])
    with open(sys.argv[1]) as file:
        found = json.load(file)
    machine = int(found["machine"].split()[0])
    all_points = points(found["allreduce"])
    model = fit_two_nodes(all_points, machine)
    print(f"a {model['a'] * 1e6:.1f} us, o {model['o'] * 1e6:.1f} us a message, e {model['e']:.3f}, p {model['p'] * 1e9:.3f} ns a"
          f" byte, c {model['c'] * 1e9:.3f} ns a byte\n")
    print_check(model, all_points, machine)
    for step in (1.0, 0.1):
        print_forecast(model, step, 8)


if __name__ == "__main__":
    main()
