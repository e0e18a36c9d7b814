# SPDX-License-Identifier: MIT
"""Recipe for Spack, not yet tried: packages/ddprun/package.py of a repository of packages. The
release's tarball is expected in the current directory."""

import os

from spack.package import *


class Ddprun(AutotoolsPackage, CudaPackage):
    """Data-parallel training in C: a launcher for one process per device, and a trainer with the
    same bits on any number of them."""

    manual_download = True
    url = f"file://{os.getcwd()}/ddprun-0.8.0.tar.xz"

    license("MIT")

    version("0.8.0")

    variant("pmix", default=False, description="Several nodes under a PMIx server")
    variant("ucx", default=True, description="Collectives between the CPUs of several machines")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("pkgconfig", type="build")
    depends_on("zlib-api")
    depends_on("jansson")
    depends_on("nettle")
    depends_on("libpng")
    depends_on("jpeg")
    depends_on("pcre2")
    depends_on("utf8proc")
    depends_on("libyaml")
    depends_on("hwloc@2:")
    depends_on("protobuf-c")
    depends_on("pmix@4:", when="+pmix")
    depends_on("ucx@1.12:", when="+ucx")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl@2.19.3:", when="+cuda")

    def configure_args(self):
        args = ["--with-hwloc", "--with-protobuf-c", "--without-check"]
        args += self.with_or_without("pmix") + self.with_or_without("ucx")
        if self.spec.satisfies("+cuda"):
            args.append(f"--with-cuda={self.spec['cuda'].prefix}")
            args.append(f"--with-nccl={self.spec['nccl'].prefix}")
        else:
            args.append("--without-cuda")
        return args
