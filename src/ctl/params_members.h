/* The members of a struct of parameters, from UMF_PARAMS_TABLE: see ctl/params.h. It is included
 * inside the struct, once for each table, so it has no guard. */
#define UMF_PARAMS_CREATE(api, function)
#define UMF_PARAMS_CREATE_BY_HAND(function)
#define UMF_PARAMS_DESTROY(api, function)
#define UMF_PARAM(api, function, kind, type, member, ...) type member;
#define UMF_PARAM_TEXT(kind, type, member, ...) type member;
#define UMF_PARAM_PARSED(kind, name, ...)

#include UMF_PARAMS_TABLE

#include "ctl/params_end.h"
