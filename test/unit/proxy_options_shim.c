/* The parser, in C, without the rest of the proxy library, which would replace malloc here. */
#include "proxy/options.c"
