/*
 * Parameters of a kind. Each stands once, as a row of the table `<kind>_params.def`. From the table
 * come the struct, its defaults, the public functions, the settings in text and by path, what
 * `umfctl settings` prints, and the table in docs/guide/creation.md.
 *
 *   UMF_PARAM(UMF_API_EXT_1, umfToyParamsSetGrain, SIZE, size_t, grain, 64, "64", "help", ...)
 *
 * is a parameter with a public setter. The arguments: the version that added it, the setter's name,
 * the type of the field (UMF_FIELD_SIZE; TRUTH is a bool that the setter takes as an int), the type
 * and the name of the member, its default, and the default and a line of help for users. Further
 * members of umf_field_t may follow: limits (`.rules`), `.words`, or a function that stores the
 * value (`.set`).
 *
 *   UMF_PARAM_TEXT(SIZE, size_t, grain, 64, "64", "help", ...)     without a public setter
 *   UMF_PARAM_PARSED(TEXT, grains, "none", "help", .set = ...)     the same; `.set` stores it
 *   UMF_PARAMS_CREATE(UMF_API_EXT_1, umfToyParamsCreate)           takes nothing but the handle
 *   UMF_PARAMS_CREATE_BY_HAND(umfToyParamsCreate)                  the kind's file defines it
 *   UMF_PARAMS_DESTROY(UMF_API_EXT_1, umfToyParamsDestroy)
 *
 * A kind includes ctl/params_members.h inside its struct, and ctl/params_define.h behind it:
 *
 *   #define UMF_PARAMS umf_toy_params
 *   #define UMF_PARAMS_TABLE "providers/toy_params.def"
 *   typedef struct umf_toy_params_t {
 *   #include "ctl/params_members.h"
 *   } umf_toy_params_t;
 *   #include "ctl/params_define.h"
 *
 * and then has what UMF_PARAMS_DECLARE declares. A struct may have more members; they start as 0.
 */
#ifndef UMF_SRC_CTL_PARAMS_H
#define UMF_SRC_CTL_PARAMS_H

#include "base/handle.h"
#include "ctl/field.h"

/* Texts of fixed room, for members. Longer texts are cut. */
typedef char umf_name_t[UMF_NAME_MAX];

/* Parameter objects are handles: setters and creations look them up, so a destroyed object or one
 * of another kind is refused. */
typedef struct umf_params_kind_t {
    umf_handle_kind_t handle; /* named after the function that creates an object */
    size_t size;
    const void *defaults; /* NULL: all 0 */
    umf_fields_t fields;
    /* Each may be NULL. */
    umf_result_t (*init)(void *params);      /* initialises members without a constant default */
    umf_result_t (*init_text)(void *params); /* runs after init for an object made from text */
    void (*fini)(void *params);              /* frees what its members own */
} umf_params_kind_t;

#define UMF_PARAMS_DECLARE(params)                                                                 \
    extern const params##_t params##_defaults;                                                     \
    extern const umf_params_kind_t params##_kind;                                                  \
    /* The pair of a descriptor. */                                                                \
    umf_result_t params##_from_text(const char *text, void **made);                                \
    void params##_destroy(void *made);

/* After a failure `*made` is NULL: no memory, logged, or the result of init. */
umf_result_t umf_params_create(const umf_params_kind_t *kind, void **made);
/* The end of a public creation. Passes new parameters to the caller if `result` is a success, else
 * destroys them. INVALID_ARGUMENT, logged: `handle` is NULL. */
umf_result_t umf_params_give(const umf_params_kind_t *kind, void *params, umf_result_t result,
                             void *handle, const char *function);
/* NULL is ignored. INVALID_ARGUMENT, logged: not a live object of this kind. */
umf_result_t umf_params_destroy(const umf_params_kind_t *kind, void *params, const char *function);
/* The body of a setter: writes the field "params.<name>". */
umf_result_t umf_params_set(const umf_params_kind_t *kind, void *params, const char *name,
                            const void *value, const char *function);
/* The parameters for a creation: those given, or the defaults for NULL. NULL: not a live object of
 * this kind, which is logged. */
const void *umf_params_or_defaults(const umf_params_kind_t *kind, const void *params,
                                   const char *function);
/* The body of a get_name. INVALID_ARGUMENT: `out` is NULL. */
umf_result_t umf_params_name(const char *name, const char **out);
/* The body of `params_from_text` in a descriptor: new parameters, of which every setting of `text`
 * ("name=value,name=value", grammar in umf/text.h) is written. On failure nothing is left, and
 * umfTextError names the position, the word and the expected form. */
umf_result_t umf_params_read(const umf_params_kind_t *kind, const char *text, void **params);

/* Decimal numbers of 32 bits, joined by the characters of `joints` in turn, the last of which also
 * joins groups that the others have joined: "+" for 0+1, "*+" for 0*3+1*1. "" has none. false: the
 * text is something else, or has more than `room`. */
bool umf_params_parse_numbers(const char *text, const char *joints, unsigned *numbers, size_t room,
                              size_t *count);

#endif
