// The checksum of the library, which does not export it.
#include "system/checksum.c"
