#!/usr/bin/env bash
# Makes libumf-doc of the Debian source package in a clean folder, with the Sphinx of the system, and looks into it.
# Long runs only: the site is made once more.
. "$(dirname "$0")/common.sh" "$1" doc

for tool in dpkg-buildpackage dh; do
    command -v $tool >/dev/null || skip "$tool is not here (scripts/install-deps.sh installs it)"
done
dpkg-checkbuilddeps -A "$source/debian/control" 2>"$work/missing" || skip "$(sed 's/.*error: //' "$work/missing")"
make_source_package

mkdir "$work/packages"
cd "$work/packages"
quietly dpkg-source -x "$work/source/umf_$package_version.dsc" tree
(cd tree && quietly dpkg-buildpackage -us -uc -A)
package=libumf-doc_${package_version}_all.deb
need_file "$package"
if command -v lintian >/dev/null; then
    quietly lintian --allow-root --fail-on error,warning "$package"
else
    echo "install.doc: not checked by lintian, which is not here (scripts/install-deps.sh installs it)"
fi

quietly dpkg-deb -x "$package" root
html=root/usr/share/doc/libumf-doc/html
for page in index guide changelog search guide/mistakes; do
    need_file "$html/$page.html"
done
grep -oE '(href|src)="[^"#?]+' "$html/index.html" | cut -d'"' -f2 | grep -v : | sort -u | while read -r file; do
    [ -e "$html/$file" ] || [ -h "$html/$file" ] || fail "the first page leads to $file, which the package lacks"
done
need_file root/usr/share/doc-base/libumf-doc.libumf
zcat root/usr/share/man/man3/umfPoolMalloc.3.gz | grep umfPoolMalloc >/dev/null || fail "there is no manual page of umfPoolMalloc"
pages=$(find root/usr/share/man/man3 -name '*.3.gz' | wc -l)
[ "$pages" -gt 300 ] || fail "there are $pages manual pages only"
echo "install.doc: $package, $(find "$html" -name '*.html' | wc -l) pages, $pages manual pages"
