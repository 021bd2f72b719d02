# Takes the code out of the documentation, so that it is compiled and run:
#
#   awk -v out=<folder> -f extract.awk <page.md or header>...
#
# Code is a block between ```c (or ```cpp) and ``` in a page, between @code{.c} (or @code{.cpp}) and
# @endcode in a header. What it is can be seen in it:
#   with a main:           a program; it is run and must end with 0
#   beginning with an #include:  a file; it is compiled
#   else                   a few statements; compiled inside a function, after test/docs/prelude.h
# A line <!-- not compiled: why --> before a block leaves it out.
#
# Prints one line for each: program, file or statements, the page's name and the file made of it.

function page_of(path) {
    sub(/.*\//, "", path)
    sub(/\.hpp$/, "_hpp", path)
    sub(/\.(md|h)$/, "", path)
    return path
}

function begin(language) {
    inside = 1
    skip = exempt
    extension = language == "cpp" || language == "cc" ? "cpp" : "c"
    first = FNR + 1
    body = ""
    is_program = is_file = 0
}

function finish(    page, name, kind) {
    inside = 0
    exempt = 0
    if (skip) return
    page = page_of(FILENAME)
    name = sprintf("%s/%s_%d.%s", out, page, ++count[FILENAME], extension)
    kind = is_program ? "program" : is_file ? "file" : "statements"
    if (kind == "statements") {
        body = sprintf("#include \"prelude.h\"\nvoid statements(void);\nvoid statements(void) {\n" \
            "#line %d \"%s\"\n%s}\n", first, FILENAME, body)
    } else {
        body = sprintf("#line %d \"%s\"\n%s", first, FILENAME, body)
    }
    printf "%s", body >name
    close(name)
    print kind " " page " " name
}

FNR == 1 {
    if (inside) {
        print previous ": a block of code does not end" >"/dev/stderr"
        exit 1
    }
    header = FILENAME ~ /\.h(pp)?$/
    previous = FILENAME
}

inside && (header ? /@endcode/ : /^```[ \t]*$/) { finish(); next }
inside {
    line = $0
    if (header) sub(/^ *(\/\/\/|\*) ?/, "", line)
    if (line ~ /^(int|static int)?[ \t]*main\(/) is_program = 1
    if (body == "" && line ~ /^#include/) is_file = 1
    body = body line "\n"
    next
}
fenced { if (/^```[ \t]*$/) fenced = 0; next }
header && /@code\{\.(c|cpp|cc)\}/ {
    language = $0
    sub(/.*@code\{\./, "", language)
    sub(/\}.*/, "", language)
    begin(language)
    next
}
!header && /^```(c|cpp)[ \t]*$/ { begin(substr($1, 4)); next }
!header && /^```/ { fenced = 1; exempt = 0; next }
/^<!-- not compiled: .* -->$/ { exempt = 1; next }
NF { exempt = 0 }
