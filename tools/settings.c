/* The settings of each kind in creation text, from the tables of parameters in src/. */
#include <stddef.h>

#include "report.h"
#include "umfctl.h"

typedef struct setting_t {
    const char *kind; /* a kind begins; NULL: a setting of it */
    const char *name;
    const char *preset;
    const char *help;
} setting_t;

#define UMF_PARAMS_CREATE(api, function)
#define UMF_PARAMS_CREATE_BY_HAND(function)
#define UMF_PARAMS_DESTROY(api, function)
#define UMF_PARAM(api, function, type, c_type, member, value, ...)                                 \
    UMF_PARAM_PARSED(type, member, __VA_ARGS__)
#define UMF_PARAM_TEXT(type, c_type, member, value, ...) UMF_PARAM_PARSED(type, member, __VA_ARGS__)
#define UMF_PARAM_PARSED(type, member, ...) SETTING(member, __VA_ARGS__, )
#define SETTING(member, shown, text, ...) {NULL, #member, shown, text},
#define SETTINGS_OF(name) {name, NULL, NULL, NULL},

static const setting_t settings[] = {
#include "settings.def"
};

int umfctl_settings(void) {
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        const setting_t *setting = &settings[i];
        if (setting->kind) {
            report_section(setting->kind, setting->kind, 18);
            continue;
        }
        report_row(&(report_row_t){.name = setting->name,
                                   .value = {.unit = REPORT_TEXT, .text = setting->preset},
                                   .note = setting->help});
    }
    return 0;
}
