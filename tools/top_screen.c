/*
 * The live screen of umfctl top, by ncurses. Keys: see `keys` below. The terminal is restored on
 * every way out: signals only set a flag, which the loop looks at.
 */
#include "plain.h"
#include "start.h"
#include "top.h"
#include "top_callers.h"
#include "top_filter.h"

#ifndef UMFCTL_WITH_CURSES

bool top_has_screen(void) {
    return false;
}

int top_screen(top_t *top, double interval) {
    (void)top, (void)interval;
    return 1;
}

#else

#include <curses.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <term.h>
#include <unistd.h>

#include "top_put.h"

static const char keys[] =
    "sort h l p a g n   / find   o pools   enter open   c callers   ? help   q quit";

static const char *const help[] = {
    "Each process has a block; its pools and providers are sorted within it.",
    "",
    "  LIVE     bytes that the program has allocated from the pool",
    "  HELD     bytes that the pool has from its provider",
    "  PEAK     the most that a provider gave out",
    "  AWAY     bytes without memory, because the pool is suspended",
    "  BLOCKS   allocations that live",
    "  GROWTH/s how LIVE changes in a second",
    "  -        not reported by the pool or provider",
    "",
    "  up, down    choose a pool            enter   its spans: is it fragmented?",
    "  h l p a g n sort                     t       trim it: unused memory is returned",
    "  space       now, not in a second     s       suspend it, after a question",
    "  /           find: rows with a text   w       wake it: resume",
    "  o           only pools, or all       escape  back, or all rows again",
    "  c           who allocates from it    q       back, or quit",
};

typedef enum view_t { VIEW_LIST, VIEW_POOL, VIEW_CALLERS, VIEW_HELP } view_t;

typedef struct screen_t {
    top_t *top;
    top_filter_t filter;
    view_t view;
    size_t chosen;  /* index of a row */
    size_t first;   /* line at the top */
    bool is_asking; /* whether to suspend */
    char status[160];
    umf_reader_t *snapshot; /* of the pool that is open */
    uint32_t number;        /* its object there */
    top_callers_t callers;
    uint32_t process; /* whose it is */
} screen_t;

static volatile sig_atomic_t is_ended;

static void end(int number) {
    is_ended = 1;
    if (number == SIGTERM || number == SIGHUP) {
        start_pass_on(number);
    }
}

bool top_has_screen(void) {
    int error = 0;
    bool is_known = setupterm(NULL, STDOUT_FILENO, &error) == OK;
    if (is_known) {
        del_curterm(cur_term);
    }
    return is_known;
}

/* --- drawing ---------------------------------------------------------------------------------- */

void top_put(int line, attr_t look, const char *text) {
    char shown[512];
    attron(look);
    mvaddnstr(line, 0, plain_copy(shown, sizeof(shown), text), COLS);
    attroff(look);
}

static attr_t look_of(const screen_t *screen, size_t row) {
    const top_row_t *shown = &screen->top->rows[row];
    attr_t look = shown->object.kind == UMF_RECORD_OBJECT_POOL ? A_NORMAL : A_DIM;
    look |= shown->object.flags & UMF_RECORD_OBJECT_IS_ASLEEP ? COLOR_PAIR(2) : 0;
    look |= shown->has_growth && shown->growth > 0 ? COLOR_PAIR(1) : 0;
    return row == screen->chosen ? A_REVERSE : look;
}

static void title_make(const top_t *top, uint32_t process, char *text, size_t size) {
    char live[16], held[16], away[16];
    top_sum_t sum = top_sum(top, process);
    snprintf(text, size, "%u %.31s: %zu pool%s, %s live of %s held%s%s", top->targets[process].pid,
             top->with[process].name, sum.pools, sum.pools == 1 ? "" : "s",
             top_bytes(sum.live, live, sizeof(live)), top_bytes(sum.held, held, sizeof(held)),
             sum.away ? ", away " : "", sum.away ? top_bytes(sum.away, away, sizeof(away)) : "");
}

/* The lines of the list: a title for each process, its rows, and the pages of an arena below its
 * row. `line` of the chosen row. */
static size_t list_draw(screen_t *screen, int from, int to, bool is_drawn, size_t *chosen) {
    const top_t *top = screen->top;
    size_t line = 0;
    uint32_t process = UINT32_MAX;
    char text[160];
    for (size_t i = 0; i < top->count; i++) {
        bool is_first = process != top->rows[i].process;
        if (!top_filter_shows(&screen->filter, top, i)) {
            continue;
        }
        process = top->rows[i].process;
        int parts = top->rows[i].has_pages ? 3 : 2;
        for (int part = is_first ? 0 : 1; part < parts; part++, line++) {
            int at = from + (int)line - (int)screen->first;
            *chosen = part == 1 && i == screen->chosen ? line : *chosen;
            if (!is_drawn || line < screen->first || at >= to) {
                continue;
            }
            if (part == 0) {
                title_make(top, top->rows[i].process, text, sizeof(text));
            } else if (part == 1) {
                top_line(top, &top->rows[i], text);
            } else {
                top_pages(&top->rows[i], text);
            }
            top_put(at, part == 0 ? A_BOLD : part == 1 ? look_of(screen, i) : A_DIM, text);
        }
    }
    return line;
}

static void list_show(screen_t *screen) {
    int to = LINES - 2;
    size_t room = to > 1 ? (size_t)(to - 1) : 1, chosen = 0;
    list_draw(screen, 1, to, false, &chosen);
    if (chosen < screen->first || chosen >= screen->first + room) {
        screen->first = chosen < room ? 0 : chosen - room / 2;
    }
    screen->first = chosen + 1 <= room && screen->first > chosen ? 0 : screen->first;
    top_put(0, A_UNDERLINE, top_head);
    list_draw(screen, 1, to, true, &chosen);
}

static void help_show(void) {
    top_put(0, A_BOLD, "umfctl top");
    for (size_t i = 0; i < sizeof(help) / sizeof(help[0]); i++) {
        top_put(2 + (int)i, A_NORMAL, help[i]);
    }
}

/* --- a pool ----------------------------------------------------------------------------------- */

/* The figures of the last sample, as the pool in the snapshot has none of its pages. */
static void pool_show(const screen_t *screen) {
    const umf_record_object_t *object = umf_reader_object(screen->snapshot, screen->number);
    const top_t *top = screen->top;
    char pages[TOP_LINE] = "";
    for (size_t i = 0; i < top->count; i++) {
        if (top->rows[i].process == screen->process && top_is_same(&top->rows[i].object, object)) {
            top_pages(&top->rows[i], pages);
        }
    }
    top_spans_show(screen->snapshot, screen->number, screen->first, pages);
}

static void callers_show(screen_t *screen) {
    const top_callers_t *callers = &screen->callers;
    size_t room = LINES > 4 ? (size_t)LINES - 4 : 1;
    size_t most = callers->count > room ? callers->count - room : 0;
    screen->first = screen->first < most ? screen->first : most;
    top_put(0, A_BOLD, callers->title);
    for (size_t i = 0; i < room && screen->first + i < callers->count; i++) {
        top_put(2 + (int)i, A_NORMAL, callers->texts[screen->first + i]);
    }
}

static void draw(screen_t *screen) {
    erase();
    if (screen->view == VIEW_HELP) {
        help_show();
    } else if (screen->view == VIEW_POOL) {
        pool_show(screen);
    } else if (screen->view == VIEW_CALLERS) {
        callers_show(screen);
    } else {
        list_show(screen);
    }
    char text[240];
    top_filter_text(&screen->filter, screen->top, screen->chosen, text, 120);
    if (screen->chosen < screen->top->count) {
        top_advice(&screen->top->rows[screen->chosen], text + strlen(text), 120);
    }
    bool is_position = screen->view == VIEW_LIST && !screen->status[0];
    top_put(LINES - 2, screen->is_asking ? A_BOLD : A_NORMAL, is_position ? text : screen->status);
    top_put(LINES - 1, A_DIM, screen->view == VIEW_LIST ? keys : "q back   ? help");
    refresh();
}

/* --- keys ------------------------------------------------------------------------------------- */

/* The pool itself, or the only pool over a provider; else NULL. */
static const top_row_t *pool_of_row(const top_t *top, const top_row_t *row) {
    const top_row_t *last = NULL;
    size_t count = 0;
    for (const top_row_t *each = top->rows; each < top->rows + top->count; each++) {
        if (each->process == row->process && each->object.kind == UMF_RECORD_OBJECT_POOL &&
            each->object.parent == row->number) {
            last = each;
            count++;
        }
    }
    return row->object.kind == UMF_RECORD_OBJECT_POOL ? row : count == 1 ? last : NULL;
}

static const top_row_t *chosen_pool(screen_t *screen) {
    const top_t *top = screen->top;
    bool is_shown =
        screen->chosen < top->count && top_filter_shows(&screen->filter, top, screen->chosen);
    const top_row_t *row = is_shown ? &top->rows[screen->chosen] : NULL;
    if (!row) {
        snprintf(screen->status, sizeof(screen->status), "no row is shown");
    } else if (!(row = pool_of_row(top, row))) {
        snprintf(screen->status, sizeof(screen->status),
                 "a provider of several pools, or of none: choose a pool");
    } else if (top->with[row->process].is_viewed) {
        snprintf(
            screen->status, sizeof(screen->status),
            "no attach socket: only figures; 'umfctl top -- PROGRAM' or UMF_RECORD_ATTACH=yes");
        row = NULL;
    }
    return row;
}

static void change_pool(screen_t *screen, umf_attach_kind_t kind, const char *done) {
    const top_row_t *row = chosen_pool(screen);
    if (row) {
        char label[64];
        attach_t *target = &screen->top->targets[row->process];
        umf_attach_request_t request = attach_request(kind, &row->object);
        bool is_done = attach_ask(target, &request, NULL);
        snprintf(screen->status, sizeof(screen->status), "%.60s %.90s",
                 is_done ? top_label(screen->top, row, label, sizeof(label)) : "",
                 is_done ? done : target->error);
    }
}

static void ask_suspend(screen_t *screen) {
    const top_row_t *row = chosen_pool(screen);
    if (row) {
        char label[64];
        snprintf(screen->status, sizeof(screen->status),
                 "suspend %.40s? the program fails if it uses the memory (y/n)",
                 top_label(screen->top, row, label, sizeof(label)));
        screen->is_asking = true;
    }
}

static void pool_close(screen_t *screen) {
    if (screen->snapshot) {
        umf_reader_close(screen->snapshot);
    }
    top_callers_free(&screen->callers);
    screen->snapshot = NULL;
    screen->view = VIEW_LIST;
    screen->first = 0;
}

static void pool_open(screen_t *screen) {
    const top_row_t *row = chosen_pool(screen);
    attach_t *target = row ? &screen->top->targets[row->process] : NULL;
    screen->snapshot = target ? attach_snapshot(target, UMF_ATTACH_SNAPSHOT) : NULL;
    uint32_t count = screen->snapshot ? umf_reader_info(screen->snapshot)->object_count : 0;
    for (uint32_t i = 1; i < count; i++) {
        if (top_is_same(umf_reader_object(screen->snapshot, i), &row->object)) {
            screen->number = i;
            screen->process = row->process;
            screen->view = VIEW_POOL;
            screen->first = 0;
            return;
        }
    }
    if (target) {
        snprintf(screen->status, sizeof(screen->status), "%.150s",
                 screen->snapshot ? "there is no such pool any more" : target->error);
        pool_close(screen);
    }
}

/* The screen that waits for a recording, and how many tenths of a second are left. */
static screen_t *waiting;
static unsigned waits_left;

/* Waits a tenth of a second; a key ends it. */
static bool is_enough(void) {
    if (waits_left == 10 * TOP_CALLERS_SECONDS) {
        draw(waiting);
    }
    timeout(100);
    int key = getch();
    return (key != ERR && key != KEY_RESIZE) || is_ended || --waits_left == 0;
}

static void callers_open(screen_t *screen) {
    const top_row_t *row = chosen_pool(screen);
    if (!row) {
        return;
    }
    uint32_t pid = screen->top->targets[row->process].pid;
    snprintf(screen->status, sizeof(screen->status),
             "process %u is being recorded for %u seconds; a key ends that", pid,
             TOP_CALLERS_SECONDS);
    waiting = screen;
    waits_left = 10 * TOP_CALLERS_SECONDS;
    if (top_callers_load(&screen->callers, pid, &row->object, is_enough, screen->status,
                         sizeof(screen->status))) {
        screen->status[0] = '\0';
        screen->view = VIEW_CALLERS;
        screen->first = 0;
    }
}

static void scroll_by(screen_t *screen, int by) {
    if (screen->view != VIEW_POOL && screen->view != VIEW_CALLERS) {
        screen->chosen = top_filter_move(&screen->filter, screen->top, screen->chosen, by);
    } else if (by < 0) {
        screen->first -= screen->first > (size_t)-by ? (size_t)-by : screen->first;
    } else {
        screen->first += (size_t)by;
    }
}

static void sort_by(screen_t *screen, top_key_t key) {
    screen->top->key = key;
    top_sort(screen->top);
    screen->first = 0;
    screen->chosen = top_filter_move(&screen->filter, screen->top, SIZE_MAX, 0);
}

static void filter_again(screen_t *screen) {
    screen->chosen = top_filter_move(&screen->filter, screen->top, screen->chosen, 0);
}

/* Keys of the list. */
static void list_key(screen_t *screen, int key) {
    static const struct {
        int key;
        top_key_t by;
    } sorts[] = {{'h', TOP_HELD}, {'l', TOP_LIVE},   {'p', TOP_PEAK},
                 {'a', TOP_AWAY}, {'g', TOP_GROWTH}, {'n', TOP_NAME}};
    for (size_t i = 0; i < sizeof(sorts) / sizeof(sorts[0]); i++) {
        if (key == sorts[i].key) {
            sort_by(screen, sorts[i].by);
        }
    }
    if (key == '\n' || key == '\r' || key == KEY_ENTER) {
        pool_open(screen);
    } else if (key == 'c') {
        callers_open(screen);
    } else if (key == 't') {
        change_pool(screen, UMF_ATTACH_TRIM, "is trimmed");
    } else if (key == 's') {
        ask_suspend(screen);
    } else if (key == '/') {
        top_filter_begin(&screen->filter);
    } else if (key == 'o') {
        screen->filter.is_pools_only = !screen->filter.is_pools_only;
        filter_again(screen);
    } else if (key == 27) {
        screen->filter.text[0] = '\0';
    } else if (key == 'w') {
        change_pool(screen, UMF_ATTACH_RESUME, "is resumed");
    }
}

/* False: the screen ends. */
static bool press(screen_t *screen, int key) {
    if (screen->is_asking) {
        screen->is_asking = false;
        snprintf(screen->status, sizeof(screen->status), "not suspended");
        if (key == 'y') {
            change_pool(screen, UMF_ATTACH_SUSPEND, "is suspended; w wakes it");
        }
        return true;
    }
    screen->status[0] = '\0';
    if (screen->filter.is_typed) {
        top_filter_key(&screen->filter, key, key == KEY_BACKSPACE || key == 127 || key == 8);
        filter_again(screen);
    } else if (screen->view == VIEW_LIST && key == 'q') {
        return false;
    } else if (screen->view != VIEW_LIST && (key == 'q' || key == 27)) {
        pool_close(screen);
    } else if (key == '?' && screen->view == VIEW_HELP) {
        pool_close(screen); /* it may have been opened before the help */
    } else if (key == '?') {
        screen->view = VIEW_HELP;
    } else if (key == KEY_UP || key == KEY_DOWN) {
        scroll_by(screen, key == KEY_UP ? -1 : 1);
    } else if (key == KEY_PPAGE || key == KEY_NPAGE) {
        scroll_by(screen, key == KEY_PPAGE ? -10 : 10);
    } else if (screen->view == VIEW_LIST) {
        list_key(screen, key);
    }
    return true;
}

/* --- the loop --------------------------------------------------------------------------------- */

/* NULL: the terminal cannot be used. */
static SCREEN *begin(void) {
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    struct sigaction action = {.sa_handler = end};
    SCREEN *terminal = newterm(NULL, stdout, stdin);
    if (!terminal) {
        return NULL;
    }
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    set_escdelay(25);
    curs_set(0);
    const char *no_color = getenv("NO_COLOR");
    if (has_colors() && !(no_color && *no_color)) {
        start_color();
        use_default_colors();
        init_pair(1, COLOR_YELLOW, -1);
        init_pair(2, COLOR_CYAN, -1);
    }
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        sigaction(signals[i], &action, NULL);
    }
    return terminal;
}

/* The chosen object stays chosen, wherever it is sorted to. */
static bool sample(screen_t *screen) {
    top_t *top = screen->top;
    top_row_t chosen = {.process = UINT32_MAX};
    if (screen->chosen < top->count) {
        chosen = top->rows[screen->chosen];
    }
    bool is_left = top_sample(top);
    for (size_t i = 0; i < top->count; i++) {
        if (top->rows[i].process == chosen.process &&
            top_is_same(&top->rows[i].object, &chosen.object)) {
            screen->chosen = i;
        }
    }
    filter_again(screen);
    return is_left;
}

int top_screen(top_t *top, double interval) {
    screen_t screen = {.top = top};
    bool goes_on = true, is_left = true;
    SCREEN *terminal = begin();
    if (!terminal) {
        const char *name = getenv("TERM");
        return print_message("the terminal '%s' (TERM) is not known; -n 1 prints plain text",
                             name ? name : "");
    }
    while (goes_on && is_left && !is_ended) {
        draw(&screen);
        timeout((int)(interval * 1000));
        int key = getch();
        if (is_ended || key == KEY_RESIZE) {
            continue;
        }
        goes_on = key == ERR || press(&screen, key);
        if (goes_on && (key == ERR || key == ' ' || key == 't' || key == 'y' || key == 'w')) {
            is_left = sample(&screen);
        }
    }
    pool_close(&screen);
    endwin();
    delscreen(terminal);
    if (!is_left && !top->is_started) {
        print_message("%s", top->note[0] ? top->note : "no process is left");
    }
    return is_left || top->is_started ? 0 : 1;
}

#endif
