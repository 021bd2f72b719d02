/* The node "umf.suspend" of settings. */
#include "ctl/ctl.h"
#include "ctl/field.h"
#include "ext/staging/pinned.h"
#include "ext/suspend/suspend.h"

UMF_FIELD_GETTER(get_lease, int, umf_pinned_lease())

static umf_result_t set_lease(void *object, const void *value) {
    (void)object;
    umf_pinned_set_lease(*(const int *)value);
    return UMF_RESULT_SUCCESS;
}

static const umf_field_t settings_list[] = {
    {.path = "lease",
     UMF_FIELD_SETTING(INT, get_lease, set_lease),
     .help = "milliseconds for which unused pinned memory is kept for the next suspend, 0 to "
             "3600000",
     .preset = "5000",
     .rules = UMF_RULE_RANGE | UMF_RULE_OR_ZERO,
     .min = 0,
     .max = UMF_PINNED_LEASE_MAX},
};
static const umf_fields_t settings_fields = UMF_FIELDS(settings_list);

static umf_result_t settings_query(umf_ctl_query_t *query, const char *rest) {
    return umf_field_ctl(NULL, false, &settings_fields, query->source, rest, query->arg,
                         query->size, query->type, *query->args);
}

void umf_suspend_settings_init(void) {
    umf_ctl_register("suspend", settings_query);
}
