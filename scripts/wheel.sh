#!/usr/bin/env bash
# Makes what an index of Python packages takes, a source distribution and a wheel: scripts/wheel.sh [folder]
#
# The wheel is made from the source distribution, without a network, and runs from glibc 2.28 on (its tag is
# manylinux_2_28). Its compiler is clang as the Python package ziglang has it, which links against the symbols of that
# glibc; scripts/install-deps.sh fetches it into build/deps/zig, and the tools of Python into build/deps/wheel. Without
# zig the machine's own compiler makes the wheel; its tag is then of the oldest glibc that has the symbols, and the
# script prints which symbols these are. The folder is build/wheelhouse unless named.
# python/tests/wheel.sh tests the wheel.
set -euo pipefail

glibc=2.28
root=$(cd "$(dirname "$0")/.." && pwd)
zig=$root/build/deps/zig/ziglang/zig
tools=$root/build/deps/wheel
python=$(command -v "${PYTHON:-python3}")
house=${1:-$root/build/wheelhouse}
mkdir -p "$house"
house=$(cd "$house" && pwd)
work=$house/work

die() {
    printf 'scripts/wheel.sh: %s\n' "$@" >&2
    exit 1
}
[ -d "$tools" ] || die "build/deps/wheel is not there: run scripts/install-deps.sh"
export PATH=$tools/bin:$PATH PYTHONPATH=$tools PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1
rm -rf "$work" "$house"/libumf-*
mkdir -p "$work/bin" "$work/include" "$work/source"
export ZIG_GLOBAL_CACHE_DIR=$work/cache ZIG_LOCAL_CACHE_DIR=$work/cache

# compiler <name> <option>...: a compiler for that glibc. clang does not know some options of gcc, and its linker not
# all of GNU ld: -Bsymbolic is the stronger one, and the version script hides what --exclude-libs would.
compiler() {
    cat >"$work/bin/$1" <<WRAPPER
#!/usr/bin/env bash
for option; do
    shift
    case \$option in
    -Wl,--exclude-libs,ALL | -fno-reorder-blocks-and-partition) ;;
    -Wl,-Bsymbolic-functions) set -- "\$@" -Wl,-Bsymbolic ;;
    *) set -- "\$@" "\$option" ;;
    esac
done
exec "$zig" cc -target $(uname -m)-linux-gnu.$glibc -fno-sanitize=undefined -isystem "$work/include" ${*:2} "\$@"
WRAPPER
    chmod +x "$work/bin/$1"
}

# Headers of libraries in /usr/include, without those of the machine's C library beside them.
copy_headers() {
    local machine folder
    machine=$(cc -dumpmachine)
    for folder in /usr/include "/usr/include/$machine"; do
        cp -rL "$folder"/hwloc* "$folder/level_zero" "$work/include" 2>/dev/null || true
    done
    mkdir "$work/include/$machine"
    cp -r "/usr/include/$machine"/python3* "$work/include/$machine" 2>/dev/null || true
}

options=("UMF_DEPS_DIR=$work/deps")
[ ! -e "$root/build/deps/cuda/include" ] || options+=("UMF_CUDA_INCLUDE_DIR=$root/build/deps/cuda/include")
if [ -x "$zig" ]; then
    copy_headers
    compiler cc
    # Exceptions of umf_torch_process go through PyTorch, which has the C++ library of g++. Its headers stand before those
    # of C (-I), and use one thing of glibc 2.32 and one of GCC 11: the parts of it that old systems lack are here.
    mkdir -p "$work/c++/sys"
    echo 'static const char __libc_single_threaded = 0;' >"$work/c++/sys/single_threaded.h" # 0: "perhaps not"
    compiler c++ "-I$work/c++" -nostdinc++ $(g++ -E -x c++ -v /dev/null 2>&1 | sed -nE 's:^ (/.*/c\+\+/.*):-I\1:p')
    echo '#include <new>
        namespace std { void __throw_bad_array_new_length() { throw bad_array_new_length(); } }' |
        "$work/bin/c++" -x c++ -fPIC -O2 -fvisibility=hidden -c -o "$work/c++/throw.o" -
    options+=("UMF_HWLOC_INCLUDE_DIR=$work/include" "UMF_LEVEL_ZERO_INCLUDE_DIR=$work/include"
        "umf_jemalloc_cc=$work/bin/cc" "CMAKE_CXX_STANDARD_LIBRARIES=$work/c++/throw.o $(g++ -print-file-name=libstdc++.so.6)\
 $(g++ -print-file-name=libgcc_s.so.1)")
    export CC=$work/bin/cc CXX=$work/bin/c++
fi

"$python" -m build --sdist --no-isolation -o "$house" "$root"
tar -xzf "$house"/libumf-*.tar.gz -C "$work/source" --strip-components=1
"$python" -m pip wheel -v --no-deps --no-build-isolation -w "$work" -C build-dir="$work/build" \
    "${options[@]/#/-Ccmake.define.}" "$work/source" >"$work/build.log" 2>&1 || {
    tail -n 40 "$work/build.log" >&2
    die "the wheel could not be built; all of its output is in $work/build.log"
}
grep -E "^ *-- (No |jemalloc: the wheel)" "$work/build.log" || true # parts that are not in the wheel
"$python" -m auditwheel repair -w "$house" "$work"/libumf-*.whl
"$python" -m auditwheel show "$work"/libumf-*.whl
rm -rf "$work"
