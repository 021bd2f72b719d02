/* The parser is part of the proxy library, whose other objects would replace malloc here. */
#include "proxy/options.c"
