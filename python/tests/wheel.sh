#!/usr/bin/env bash
# Tests a wheel of the Python package: wheel.sh <python> <folder for its work> [wheel]
#
# Without a wheel scripts/wheel.sh makes one, with the source distribution that it comes from, without a network. The
# wheel is installed in every CPython from 3.9 on that is in PATH or among those of pyenv, and programs in C are built
# against it, with CMake, too. build/deps/wheel has the tools that build and check it (scripts/install-deps.sh fetches
# them). Skips, with the reason, where they are not.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
python=$1
work=$2
pool=disjoint
tools=$root/build/deps/wheel
unset PYTHONPATH CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1
rm -rf "$work"
mkdir -p "$work"
cd "$work"

# A machine with compilers and nothing else: make and patch are for jemalloc.
configure_without_make() {
    local tool
    mkdir few source
    tar -xzf house/libumf-*.tar.gz -C source --strip-components=1
    for tool in sh cc c++ as ld ar ranlib nm ninja; do
        ln -s "$(command -v $tool)" few/
    done
    PATH=$work/few "$(command -v cmake)" -S source -B few-built -G Ninja -DUMF_PYTHON_WHEEL=ON -DUMF_BUILD_TESTS=OFF \
        -DUMF_BUILD_EXAMPLES=OFF -DUMF_BUILD_TOOLS=OFF -DUMF_BUILD_LIBUMEM=OFF >few.log 2>&1 || { cat few.log && exit 1; }
    grep "no pool of this kind, as there is no: make, patch" few.log
}

if [ $# -gt 2 ]; then
    wheel=$3
elif [ -d "$tools" ]; then
    offline=()
    ! unshare -rn true 2>/dev/null || offline=(unshare -rn)
    PYTHON=$python "${offline[@]}" "$root/scripts/wheel.sh" "$work/house"
    tar -tzf house/libumf-*.tar.gz | sed -nE 's:^[^/]*/((python/)?[^/]*)/.*:\1:p' | sort -u >folders
    for folder in .github benchmark docs examples packaging scripts test python/benchmark python/tests; do
        ! grep -qxF "$folder" folders || { echo "the source distribution has $folder" && exit 1; }
    done
    if grep -q /build/deps/jemalloc-source/configure$ <<<"$(tar -tzf house/libumf-*.tar.gz)"; then
        pool=jemalloc
        configure_without_make
    else
        echo "the source distribution is without jemalloc: build/deps/jemalloc-source is not there, or a link"
    fi
    wheel=$(echo "$work"/house/libumf-*.whl)
    [[ $wheel =~ manylinux_2_([0-9]+)_ ]] && newest=${BASH_REMATCH[1]} || newest=99
    if [ -d "$root/build/deps/zig" ] && [ "$newest" -gt 28 ]; then
        echo "$wheel is for newer systems than those of glibc 2.28" && exit 1
    fi
else
    echo "python.wheel: skipped, build/deps/wheel is not there (scripts/install-deps.sh fetches it)"
    exit 77
fi

if [ -d "$tools" ]; then
    export PYTHONPATH=$tools
    "$python" -m twine check --strict "$wheel"
    "$python" -m auditwheel show "$wheel"
    # The same file has the several names of torch_memory_saver.
    "$python" -m check_wheel_contents --ignore W002 "$wheel"
    # The buffer protocol is in the stable ABI from 3.11 on, and the same in 3.9 (core/buffer.c).
    # Its result counts that as a mistake.
    COLUMNS=1000 "$python" -m abi3audit "$wheel" >abi3.log 2>&1 || true
    sed "s/ *$//" abi3.log
    grep -q " 0 ABI violations" abi3.log
    unset PYTHONPATH
fi

"$python" -m zipfile -e "$wheel" files
for library in files/umf/*.so* files/umf/*/*.so; do
    ! readelf -SW "$library" | grep -qF .symtab || { echo "$library is not stripped" && exit 1; }
done

cat >program.c <<'C'
#include <umf.h>
int main(void) {
    return umfGetCurrentVersion() == 0;
}
C
cat >CMakeLists.txt <<'M'
cmake_minimum_required(VERSION 3.20)
project(program C)
find_package(umf 1.0 CONFIG REQUIRED)
add_executable(program program.c)
target_link_libraries(program PRIVATE umf::umf)
M
# A library of that name without our functions, as that of another distribution, is in the process before.
echo 'int umfOther;' >other.c
mkdir other
cc -shared -fPIC -Wl,-soname,libumf.so.1 other.c -o other/libumf.so.1
cat >use.py <<'P'
import ctypes, importlib.metadata, pathlib, subprocess, sys

ctypes.CDLL("other/libumf.so.1", ctypes.RTLD_GLOBAL)
import umf

about = importlib.metadata
assert about.version("libumf") == umf.__version__ == umf.info()["version"]
umf.Pool(sys.argv[1], provider="os").close()
with umf.Pool("disjoint", provider="linux_vmm") as pool:
    buffer = pool.allocate(8)
    memoryview(buffer)[:] = b"contents"
    umf.suspend(pool)
    umf.resume(pool)
    assert bytes(buffer) == b"contents"
    buffer.free()
licences = "".join(one.read_text() for one in about.files("libumf") if "licenses" in str(one))
assert "Apache License" in licences and "Jason Evans" in licences
library = pathlib.Path(umf.get_library())
subprocess.run(
    ["cc", "-I", umf.get_include(), "program.c", library, f"-Wl,-rpath,{library.parent}", "-o", "program"],
    check=True,
)
subprocess.run(["./program"], check=True)
assert "pools:" in subprocess.run([sys.executable, "-m", "umf"], capture_output=True, text=True, check=True).stdout
P

installed=
for version in 3.9 3.10 3.11 3.12 3.13 3.14; do
    found=$(compgen -G "$HOME/.pyenv/versions/$version.*/bin/python" | head -n 1) ||
        found=$(command -v "python$version") || found=
    if [ -z "$found" ] || ! "$found" -c 'import venv, ensurepip' 2>/dev/null; then
        echo "CPython $version: not here"
        continue
    fi
    "$found" -m venv "$work/$version"
    "$work/$version/bin/pip" install -q "$wheel"
    "$work/$version/bin/python" use.py "$pool"
    installed=$work/$version/bin/python
    echo "CPython $version: passed"
done
[ -n "$installed" ] || { echo "no CPython was found that has venv and ensurepip" && exit 1; }
cmake -S . -B cmake -DCMAKE_PREFIX_PATH="$("$installed" -c 'import umf; print(umf.get_cmake_dir())')" >cmake.log ||
    { cat cmake.log && exit 1; }
cmake --build cmake
cmake/program
