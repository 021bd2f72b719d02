"""A recipe for Conan 2: conan create packaging/conan. It builds the sources that it lies in.

jemalloc is fetched while CMake configures; -c user.libumf:jemalloc_source=FOLDER names an unpacked one.
"""

import os

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy
from conan.errors import ConanInvalidConfiguration


class Libumf(ConanFile):
    name = "libumf"
    version = "1.3.0-dev"
    license = "Apache-2.0 WITH LLVM-exception AND BSD-2-Clause"
    description = "Memory pools over any kind of memory"
    topics = ("memory", "allocator", "memory-pool", "gpu", "ipc", "numa")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "jemalloc": [True, False], "tools": [True, False]}
    default_options = {"shared": True, "jemalloc": True, "tools": True}

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("libumf is for Linux")

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for part in ("CMakeLists.txt", "LICENSE", "cmake/*", "docs/*", "examples/*", "include/*", "lib/*", "licensing/*",
                     "packaging/systemd/*", "src/*", "tools/*", "umfd/*", "umf-remote/*"):
            copy(self, part, root, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["UMF_BUILD_SHARED_LIBRARY"] = bool(self.options.shared)
        toolchain.cache_variables["UMF_BUILD_LIBUMF_POOL_JEMALLOC"] = bool(self.options.jemalloc)
        toolchain.cache_variables["UMF_BUILD_TOOLS"] = bool(self.options.tools)
        toolchain.cache_variables["UMF_BUILD_TESTS"] = False
        toolchain.cache_variables["UMF_BUILD_EXAMPLES"] = False
        source = self.conf.get("user.libumf:jemalloc_source", default=None)
        if source:
            toolchain.cache_variables["UMF_JEMALLOC_SOURCE_DIR"] = source
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "*", os.path.join(self.source_folder, "licensing"), os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # The files of the package itself: find_package(umf), umf::umf.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "umf")]
        self.cpp_info.set_property("pkg_config_name", "umf")
        self.cpp_info.libs = ["umf"]
        if not self.options.shared:
            if self.options.jemalloc:
                self.cpp_info.libs.append("umf_jemalloc")
            self.cpp_info.system_libs = ["pthread", "dl"]
            self.cpp_info.exelinkflags = ["-Wl,-u,umfInit"]
