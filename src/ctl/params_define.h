/*
 * Defines everything for a table of parameters but the members of the struct: see ctl/params.h.
 * Reads UMF_PARAMS, UMF_PARAMS_TABLE and, if a kind needs it, UMF_PARAMS_HOOKS: ".init = ...,". It
 * has no include guard, because it is included once for each table.
 */
#include "ctl/params.h"

#define UMF_PARAMS_JOIN_(a, b) a##b
#define UMF_PARAMS_JOIN(a, b) UMF_PARAMS_JOIN_(a, b)
#define UMF_PARAMS_ID(suffix) UMF_PARAMS_JOIN(UMF_PARAMS, suffix)

#ifndef UMF_PARAMS_HOOKS
#define UMF_PARAMS_HOOKS
#endif

#define UMF_PARAMS_DECLARE_(params) UMF_PARAMS_DECLARE(params)
UMF_PARAMS_DECLARE_(UMF_PARAMS)

/* --- defaults --- */

#define UMF_PARAMS_CREATE(api, function)
#define UMF_PARAMS_CREATE_BY_HAND(function)
#define UMF_PARAMS_DESTROY(api, function)
#define UMF_PARAM(api, function, kind, type, member, value, ...) .member = value,
#define UMF_PARAM_TEXT(kind, type, member, value, ...) .member = value,
#define UMF_PARAM_PARSED(kind, name, ...)

const UMF_PARAMS_ID(_t) UMF_PARAMS_ID(_defaults) = {
#include UMF_PARAMS_TABLE
};

#include "ctl/params_end.h"

/* --- fields --- */

#define UMF_FIELD_TRUTH UMF_FIELD_BOOL

/* Texts can only be written. */
#define UMF_PARAM_ACCESS(kind)                                                                     \
    (UMF_FIELD_CREATE |                                                                            \
     (UMF_FIELD_##kind == UMF_FIELD_STRING || UMF_FIELD_##kind == UMF_FIELD_TEXT                   \
          ? 0                                                                                      \
          : UMF_FIELD_READ))
#define UMF_PARAM_ROW(kind, name, shown, text, ...)                                                \
    {.path = "params." #name,                                                                      \
     .type = UMF_FIELD_##kind,                                                                     \
     .access = UMF_PARAM_ACCESS(kind),                                                             \
     .preset = shown,                                                                              \
     .help = text,                                                                                 \
     __VA_ARGS__},
#define UMF_PARAM_PLACE(member)                                                                    \
    .offset = offsetof(UMF_PARAMS_ID(_t), member), .size = sizeof(((UMF_PARAMS_ID(_t) *)0)->member)

#define UMF_PARAMS_CREATE(api, function)
#define UMF_PARAMS_CREATE_BY_HAND(function)
#define UMF_PARAMS_DESTROY(api, function)
#define UMF_PARAM(api, function, kind, type, member, value, shown, ...)                            \
    UMF_PARAM_TEXT(kind, type, member, value, shown, __VA_ARGS__)
#define UMF_PARAM_TEXT(kind, type, member, value, shown, ...)                                      \
    UMF_PARAM_ROW(kind, member, shown, __VA_ARGS__, UMF_PARAM_PLACE(member))
#define UMF_PARAM_PARSED(kind, name, shown, ...) UMF_PARAM_ROW(kind, name, shown, __VA_ARGS__)

static const umf_field_t UMF_PARAMS_ID(_fields)[] = {
#include UMF_PARAMS_TABLE
};

#include "ctl/params_end.h"

#define UMF_PARAMS_CREATE(api, function) #function
#define UMF_PARAMS_CREATE_BY_HAND(function) #function
#define UMF_PARAMS_DESTROY(api, function)
#define UMF_PARAM(...)
#define UMF_PARAM_TEXT(...)
#define UMF_PARAM_PARSED(...)

static const char UMF_PARAMS_ID(_name)[] = "an object of "
#include UMF_PARAMS_TABLE
    ;

const umf_params_kind_t UMF_PARAMS_ID(_kind) = {.handle = {UMF_PARAMS_ID(_name)},
                                                .size = sizeof(UMF_PARAMS_ID(_t)),
                                                .defaults = &UMF_PARAMS_ID(_defaults),
                                                .fields = UMF_FIELDS(UMF_PARAMS_ID(_fields)),
                                                UMF_PARAMS_HOOKS};

#include "ctl/params_end.h"

/* --- functions --- */

umf_result_t UMF_PARAMS_ID(_from_text)(const char *text, void **made) {
    return umf_params_read(&UMF_PARAMS_ID(_kind), text, made);
}

void UMF_PARAMS_ID(_destroy)(void *made) {
    umf_params_destroy(&UMF_PARAMS_ID(_kind), made, __func__);
}

/* The argument types of setters, and the values that they pass to the field. */
#define UMF_PARAM_NUMBER(type, argument) ((type[]){(type)(argument)})
#define UMF_PARAM_TYPE_BOOL(type) type
#define UMF_PARAM_TYPE_TRUTH(type) int
#define UMF_PARAM_TYPE_INT(type) type
#define UMF_PARAM_TYPE_UINT(type) type
#define UMF_PARAM_TYPE_SIZE(type) type
#define UMF_PARAM_TYPE_ENUM(type) type
#define UMF_PARAM_TYPE_FLAGS(type) type
#define UMF_PARAM_TYPE_STRING(type) const char *
#define UMF_PARAM_VALUE_BOOL UMF_PARAM_NUMBER
#define UMF_PARAM_VALUE_TRUTH UMF_PARAM_NUMBER
#define UMF_PARAM_VALUE_INT UMF_PARAM_NUMBER
#define UMF_PARAM_VALUE_UINT UMF_PARAM_NUMBER
#define UMF_PARAM_VALUE_SIZE UMF_PARAM_NUMBER
#define UMF_PARAM_VALUE_ENUM UMF_PARAM_NUMBER
#define UMF_PARAM_VALUE_FLAGS UMF_PARAM_NUMBER
#define UMF_PARAM_VALUE_STRING(type, argument) (argument)

#define UMF_PARAMS_CREATE(api, function)                                                           \
    api umf_result_t function(UMF_PARAMS_ID(_t) * *hParams) {                                      \
        void *made;                                                                                \
        umf_result_t result = umf_params_create(&UMF_PARAMS_ID(_kind), &made);                     \
        return umf_params_give(&UMF_PARAMS_ID(_kind), made, result, hParams, __func__);            \
    }
#define UMF_PARAMS_CREATE_BY_HAND(function)
#define UMF_PARAMS_DESTROY(api, function)                                                          \
    api umf_result_t function(UMF_PARAMS_ID(_t) * hParams) {                                       \
        return umf_params_destroy(&UMF_PARAMS_ID(_kind), hParams, __func__);                       \
    }
#define UMF_PARAM(api, function, kind, type, member, ...)                                          \
    api umf_result_t function(UMF_PARAMS_ID(_t) * hParams, UMF_PARAM_TYPE_##kind(type) member) {   \
        return umf_params_set(&UMF_PARAMS_ID(_kind), hParams, #member,                             \
                              UMF_PARAM_VALUE_##kind(type, member), __func__);                     \
    }
#define UMF_PARAM_TEXT(...)
#define UMF_PARAM_PARSED(...)

#include UMF_PARAMS_TABLE

#include "ctl/params_end.h"
