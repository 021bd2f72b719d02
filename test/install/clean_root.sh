#!/usr/bin/env bash
# Installs packages with dpkg in a copy of this system's root, uses them, and removes them.
#
#   unshare -m clean_root.sh <empty folder> <folder of the packages> <folder of the programs>
#
# The copy is an overlay: nothing of the system changes. Ends with 77 where overlays cannot be mounted.
set -euo pipefail

mount -t tmpfs none "$1" 2>/dev/null || exit 77
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay none -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root" 2>/dev/null || exit 77
mount -t proc none "$1/root/proc"
mount -t tmpfs none "$1/root/tmp"
mkdir "$1/root/tmp/test"
cp -r "$2" "$1/root/tmp/test/packages"
cp -r "$3" "$1/root/tmp/test/app"

chroot "$1/root" bash -euc '
    cd /tmp/test
    files() { # the cache of the linker is made anew
        find /etc /opt /usr ! -name ld.so.cache | sort
    }
    files >before
    dpkg -i packages/*.deb
    cc app/app.c -o app_c $(pkg-config --cflags --libs umf)
    ./app_c
    umfctl --version
    cc app/umem.c -o app_umem_c $(pkg-config --cflags --libs libumem)
    ./app_umem_c
    /usr/bin/python3 -c "import umf; print(umf.Pool(\"disjoint\", provider=\"os\").allocate(100))"
    dpkg --purge python3-umf umf-tools libumf-dev libumem0 libumf1
    files | diff before -
    ! ldconfig -p | grep libumf'
