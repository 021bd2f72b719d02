# Writes the files of the viewer as C: cmake -DOUT=<file> -DFROM=<folder> -P embed.cmake

# Scripts in the order in which they run.
set(scripts units data timeline pages flame map table explain address page)

set(text "/* Made by embed.cmake. */\n#include \"files.h\"\n\n")

# Adds an array with the bytes of a file, and puts its picture_file_t into `item`.
macro(embed file name)
    file(READ "${FROM}/${file}" hex HEX)
    string(LENGTH "${hex}" digits)
    math(EXPR size "${digits} / 2")
    string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${hex}")
    string(REGEX REPLACE "('.....,'.....,'.....,'.....,'.....,'.....,'.....,'.....,)" "\\1\n" bytes "${bytes}")
    string(APPEND text "static const char ${name}[] = {${bytes}};\n")
    set(item "{${name}, ${size}}")
endmacro()

embed(page.html page)
string(APPEND text "const picture_file_t picture_page = ${item};\n")
embed(picture.css style)
string(APPEND text "const picture_file_t picture_style = ${item};\n")
set(items)
foreach(script IN LISTS scripts)
    embed(${script}.js ${script}_script)
    string(APPEND items "    ${item},\n")
endforeach()
list(LENGTH scripts count)
string(APPEND text "const picture_file_t picture_scripts[] = {\n${items}};\n"
    "const size_t picture_script_count = ${count};\n")
file(WRITE "${OUT}" "${text}")
