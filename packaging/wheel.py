#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# usage: wheel.py STAGE VERSION DIRECTORY [cuda]
#
# Makes a wheel for pip, in DIRECTORY, of what `make install DESTDIR=STAGE` has left and of the site in STAGE/site, or the wheel of
# the plugin for GPUs. CC, STRIP, READELF and PATCHELF are environment variables. `make wheel` and `make wheel-cuda` call this.
#
# The programs themselves are in the wheel's scripts, so that pip puts them into bin and no Python starts before they do.
# libddp, its plugins and the libraries it needs are in libexec/ddprun beside bin, where the run path of the programs leads:
# site-packages has another name below each Python, and `pip install --target` loses what is in lib. No compiled module
# is inside, so one wheel is for every Python.
#
# Libraries that a machine need not have are inside, with their licences, under names that no other package uses: a Python that has
# loaded its own libpng keeps it. What UCX's and PMIx's plugins need besides is not inside: a machine has these libraries,
# fit for its network, or the plugin is not loaded.
#
# The plugin for GPUs lies beside them, in a wheel that requires NVIDIA's. Their libraries are in site-packages, so its run path
# names that of every Python, and of `pip install --target`.
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
# What every machine with glibc has; and the runtime of C++, which libtiff needs, and of which a copy would need the newest glibc.
SYSTEM = re.compile(r"(libc|libm|libdl|librt|libpthread|ld-linux-.*|libstdc\+\+|libgcc_s)\.so\.\d+")
PROGRAMS = ("ddprun", "ddpreport", "trainer")
PLUGINS = ("libddp-pmix.so", "libddp-ucx.so")
CUDA_PLUGIN = "libddp-cuda.so"
# Of CUDA 13. What the plugin needs of the machine besides is the driver, and the runtime of C++, as all of NVIDIA's wheels do.
CUDA_LIBRARIES = re.compile(r"(libcudart\.so\.13|libcublasLt\.so\.13|libnccl\.so\.2|libstdc\+\+\.so\.6|libgcc_s\.so\.1)")
CUDA_WHEELS = ("nvidia-cuda-runtime>=13,<14", "nvidia-cublas>=13,<14", "nvidia-nccl-cu13>=2.19.3", "nvidia-cudnn-cu13>=9,<10")
CUDA_FOLDERS = ("nvidia/cu13/lib", "nvidia/nccl/lib", "nvidia/cudnn/lib")
PYTHONS = range(9, 15)
MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}


def fail(text):
    sys.exit(f"wheel.py: error: {text}")


def output(*command):
    try:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    except FileNotFoundError:
        fail(f"{command[0]} is not installed: install Debian's packages patchelf, binutils and dpkg")
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(map(str, command))}: exit status {error.returncode}")


def tool(name):
    return os.environ.get(name.upper(), "").split() or [name]


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output(*tool("readelf"), "-d", path))


def find_library(name):
    """Where the compiler finds it: also when it compiles for another processor."""
    path = output(*(os.environ.get("CC", "").split() or ["cc"]), f"-print-file-name={name}").strip()
    if not os.path.isabs(path):
        fail(f"{name}: the compiler does not find this library")
    return pathlib.Path(path).resolve()


def foreign_libraries(files):
    """{name: path} of all libraries that must be inside."""
    found, todo = {}, list(files)
    while todo:
        for name in needed(todo.pop()):
            if name not in found and not SYSTEM.fullmatch(name) and not name.startswith("libddp.so"):
                found[name] = find_library(name)
                todo.append(found[name])
    return found


def package_of(path):
    """The Debian package with this library, as dpkg names it; packages of before the merge of /usr have /lib."""
    for name in (str(path), re.sub("^/usr", "", str(path))):
        found = subprocess.run(["dpkg", "-S", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if found.returncode == 0:
            return found.stdout.partition(": ")[0]
    fail(f"{path}: it is in no Debian package, so its licence is not known")


def licences(paths):
    """Texts for dist-info/licenses and, for people, the list of packages."""
    texts, lines = {"LICENSE": (HERE.parent / "LICENSE").read_bytes()}, []
    for package in sorted({package_of(path) for path in paths}):
        name, source, version = output(
            "dpkg-query", "-W", "-f", "${Package} ${source:Package} ${source:Version}", package).split()
        texts[f"{name}.txt"] = pathlib.Path(f"/usr/share/doc/{name}/copyright").read_bytes()
        for common in re.findall(rb"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", texts[f"{name}.txt"]):
            texts[common.decode()] = pathlib.Path("/usr/share/common-licenses", common.decode()).read_bytes()
        lines.append(f"- {name}: https://snapshot.debian.org/package/{source}/{version}/")
    return texts, lines


def newest_glibc(files):
    versions = set()
    for file in files:
        versions.update(re.findall(r"Name: GLIBC_(\d+)\.(\d+)", output(*tool("readelf"), "-W", "--version-info", file)))
    return max((int(major), int(minor)) for major, minor in versions)


def machine_of(file):
    name = re.search(r"Machine: *(.*)", output(*tool("readelf"), "-h", file)).group(1)
    return MACHINES.get(name) or fail(f"{file}: there are no wheels for {name}")


def staged(stage, name):
    found = next((path for path in sorted(stage.rglob(name)) if path.is_file()), None)
    return found or fail(f"{stage}: {name} is not there: make install DESTDIR={stage}")


def own_name(name, path):
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    return name.replace(".so", f"-{digest}.so", 1)


def binaries(stage, scratch):
    """{path in the wheel's data: file}, stripped and with run paths; and the libraries that went in."""
    here = {f"scripts/{name}": staged(stage, f"bin/{name}") for name in PROGRAMS}
    here["data/libexec/ddprun/libddp.so.0"] = staged(stage, "libddp.so.0")
    inside = foreign_libraries(here.values())
    for plugin in PLUGINS:
        if any(stage.rglob(plugin)):
            here[f"data/libexec/ddprun/{plugin}"] = staged(stage, plugin)
    renamed = {name: own_name(name, path) for name, path in inside.items()}
    here.update({f"data/libexec/ddprun/{renamed[name]}": path for name, path in inside.items()})
    run_paths = {place: "$ORIGIN/../libexec/ddprun" if place.startswith("scripts/") else "$ORIGIN" for place in here}
    return finished(here, renamed, run_paths, scratch), sorted(inside.values())


def cuda_plugin(stage, scratch):
    """The same of the plugin, without libraries: those that are not NVIDIA's are in the other wheel."""
    path = staged(stage, CUDA_PLUGIN)
    foreign = [name for name in needed(path) if not SYSTEM.fullmatch(name) and not CUDA_LIBRARIES.fullmatch(name)]
    inside = foreign_libraries([staged(stage, "libddp.so.0")])
    for name in foreign:
        if name not in inside:
            fail(f"{CUDA_PLUGIN} needs {name}: build it with CUDA 13")
    place = f"data/libexec/ddprun/{CUDA_PLUGIN}"
    sites = [f"$ORIGIN/../../lib/python3.{minor}/site-packages" for minor in PYTHONS] + ["$ORIGIN/../.."]
    run_path = ":".join(["$ORIGIN"] + [f"{site}/{folder}" for site in sites for folder in CUDA_FOLDERS])
    return finished({place: path}, {name: own_name(name, inside[name]) for name in foreign}, {place: run_path}, scratch)


def finished(here, renamed, run_paths, scratch):
    """`here` with files of their own, stripped, that find each other."""
    for place, path in here.items():
        file = scratch / pathlib.Path(place).name
        file.write_bytes(path.read_bytes())
        file.chmod(0o755)
        output(*tool("strip"), "--strip-unneeded", file)
        # One change at a time: patchelf 0.14 spoils a file of which it is told two.
        for name in needed(file):
            if name in renamed:
                output(*tool("patchelf"), "--replace-needed", name, renamed[name], file)
        if file.name in renamed.values():
            output(*tool("patchelf"), "--set-soname", file.name, file)
        output(*tool("patchelf"), "--force-rpath", "--set-rpath", run_paths[place], file)
        here[place] = file
    return here


def documents(stage):
    pages = {f"data/share/man/man{page.suffix[1:]}/{page.name}": page for page in stage.rglob("man[17]/*")}
    words = {f"data/share/bash-completion/completions/{name}": file
             for name in PROGRAMS for file in stage.rglob(f"completions/{name}")}
    site = {f"data/share/doc/ddprun/html/{page.name}": page for page in (stage / "site").iterdir()}
    return {**pages, **words, **site}


def write_wheel(path, info, files):
    """files: {name in the wheel: (bytes, mode)}. The same files give the same wheel."""
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name)  # of 1980, where time begins
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)

        for name in sorted(files):
            data, mode = files[name]
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
            add(name, data, mode)
        add(f"{info}/RECORD", "".join(record) + f"{info}/RECORD,,\n", 0o644)


def metadata(name, version, summary, more, texts, description):
    lines = [
        "Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", f"Summary: {summary}", *more,
        *(f"License-File: {text}" for text in sorted(texts)),
        "Keywords: training,data parallel,launcher,torchrun",
        "Classifier: Operating System :: POSIX :: Linux", "Classifier: Programming Language :: C",
        "Requires-Python: >=3.9", "Description-Content-Type: text/markdown", "", description]
    return "\n".join(lines).encode()


def main():
    cuda = sys.argv[4:] == ["cuda"]
    if len(sys.argv) != 4 and not cuda:
        fail("usage: wheel.py STAGE VERSION DIRECTORY [cuda]")
    stage, version, directory = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    scratch = stage / "wheel"
    scratch.mkdir()
    programs, libraries = (cuda_plugin(stage, scratch), []) if cuda else binaries(stage, scratch)
    texts, packages = licences(libraries)
    major, minor = newest_glibc(programs.values())
    tag = f"py3-none-manylinux_{major}_{minor}_{machine_of(next(iter(programs.values())))}"
    name = "ddprun_cuda" if cuda else "ddprun"
    info, data = f"{name}-{version}.dist-info", f"{name}-{version}.data"
    files = {f"{data}/{place}": (file.read_bytes(), 0o755) for place, file in programs.items()}
    files.update({f"{info}/licenses/{text}": (content, 0o644) for text, content in texts.items()})
    if cuda:
        more = ["License: MIT", f"Requires-Dist: ddprun=={version}", *(f"Requires-Dist: {wheel}" for wheel in CUDA_WHEELS)]
        about = metadata("ddprun-cuda", version, "Data-parallel training in C: the plugin for NVIDIA GPUs", more, texts,
                         "With this plugin `trainer --device cuda` trains on NVIDIA GPUs, with CUDA 13 of NVIDIA's wheels.\n")
    else:
        description = (HERE / "wheel.md").read_text().replace("@GLIBC@", f"{major}.{minor}") + "".join(
            line + "\n" for line in packages)
        about = metadata("ddprun", version,
                         "Data-parallel training in C: one process per device, the same bits on any number of them",
                         ["License: MIT; the libraries inside have licences of their own"], texts, description)
        files.update({f"{data}/{place}": (file.read_bytes(), 0o644) for place, file in documents(stage).items()})
        files.update(
            {f"ddprun/{file.name}": (file.read_bytes(), 0o644) for file in (HERE.parent / "python/ddprun").glob("*.py")})
    wheel = ["Wheel-Version: 1.0", "Generator: ddprun", "Root-Is-Purelib: false", f"Tag: {tag}", ""]
    files[f"{info}/METADATA"] = (about, 0o644)
    files[f"{info}/WHEEL"] = ("\n".join(wheel).encode(), 0o644)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}-{tag}.whl"
    write_wheel(path, info, files)
    print(path)


main()
