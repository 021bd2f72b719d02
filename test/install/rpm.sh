#!/usr/bin/env bash
# Makes RPM packages in a clean folder, installs them into a root of their own, and builds and runs a program with what is
# there. Long runs only: jemalloc and the library are built once more.
. "$(dirname "$0")/common.sh" "$1" rpm

for tool in rpmbuild rpm rpm2archive; do
    command -v $tool >/dev/null || skip "$tool is not here (scripts/install-deps.sh installs it)"
done
[ "$with_jemalloc$with_umem" = ONON ] || skip "the packages have the jemalloc pool and libumem"
copy_sources
cp -r "$jemalloc" "$tree/jemalloc"
tar -C "$work/source" -czf "$work/source/umf-$debian_version.tar.gz" "${tree##*/}"

# Where the packages of the distribution are not those of RPM, it knows none of what is needed to build.
quietly rpmbuild -ba --nodeps --define "_topdir $work/top" --define "_sourcedir $work/source" \
    --define "_smp_mflags -j$(nproc)" "$source/packaging/rpm/libumf.spec"
root=$work/root
mkdir "$root"
for package in libumf libumf-devel libumf-tools; do
    file=$(find "$work/top/RPMS" -name "$package-$debian_version-*.rpm")
    need_file "$file"
    rpm2archive - <"$file" | tar -C "$root" -xz
done
rpm -qp --provides "$(find "$work/top/RPMS" -name "libumf-$debian_version-*.rpm")" | grep 'libumf.so.1(UMF_EXT_1.3)' >/dev/null ||
    fail "libumf does not provide the version UMF_EXT_1.3 of its symbols"

lib=$(dirname "$(find "$root" -name libumf.so)")
check_tree "$root/usr" "${lib#"$root/usr/"}"
umem_libraries=$lib
use_by_hand "$root/usr" "$lib" -lumf
quietly env LD_LIBRARY_PATH="$lib" "$root/usr/bin/umfctl" check
echo "install.rpm: $(cd "$work/top/RPMS" && find . -name '*.rpm' -printf '%f ')"
