/* One line of the live screen of umfctl top. Control characters are shown as such. */
#ifndef UMFCTL_TOP_PUT_H
#define UMFCTL_TOP_PUT_H

#include <curses.h>

void top_put(int line, attr_t look, const char *text);

#endif
