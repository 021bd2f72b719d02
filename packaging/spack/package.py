# A package for Spack, in a repository of one's own (packages/libumf/package.py), with the sources by
# `spack dev-build --source-path=<sources> libumf@1.3.0-dev` or `spack develop`.

from spack.package import *


class Libumf(CMakePackage):
    """Memory pools over any kind of memory: of the host, of files, of GPUs."""

    license("Apache-2.0 WITH LLVM-exception AND BSD-2-Clause")

    version("1.3.0-dev")

    variant("shared", default=True, description="A shared library")
    variant("jemalloc", default=True, description="The jemalloc pool; its source is fetched while CMake configures")
    variant("tools", default=True, description="umfctl, umfd and umf-remote")
    variant("hwloc", default=True, description="NUMA nodes, read through hwloc at run time")
    variant("cuda", default=False, description="The providers of NVIDIA GPUs")
    variant("level_zero", default=False, description="The providers of Intel GPUs")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("gmake", type="build")
    depends_on("hwloc@2.3:2", when="+hwloc")
    depends_on("ncurses", when="+tools")
    depends_on("cuda@12:", when="+cuda", type="build")
    depends_on("oneapi-level-zero", when="+level_zero", type="build")

    conflicts("platform=darwin", msg="libumf is for Linux")
    conflicts("platform=windows", msg="libumf is for Linux")

    def cmake_args(self):
        args = [
            self.define_from_variant("UMF_BUILD_SHARED_LIBRARY", "shared"),
            self.define_from_variant("UMF_BUILD_LIBUMF_POOL_JEMALLOC", "jemalloc"),
            self.define_from_variant("UMF_BUILD_TOOLS", "tools"),
            self.define_from_variant("UMF_BUILD_CUDA_PROVIDER", "cuda"),
            self.define_from_variant("UMF_BUILD_LEVEL_ZERO_PROVIDER", "level_zero"),
            self.define("UMF_BUILD_TESTS", False),
            self.define("UMF_BUILD_EXAMPLES", False),
        ]
        if self.spec.satisfies("+hwloc"):
            args.append(self.define("UMF_INSTALL_RPATH", self.spec["hwloc"].prefix.lib))
        if self.spec.satisfies("+cuda"):
            args.append(self.define("UMF_CUDA_INCLUDE_DIR", self.spec["cuda"].prefix.include))
        return args
