/* Undefines the macros of a table of parameters, for the next one: see ctl/params.h. No guard. */
#undef UMF_PARAMS_CREATE
#undef UMF_PARAMS_CREATE_BY_HAND
#undef UMF_PARAMS_DESTROY
#undef UMF_PARAM
#undef UMF_PARAM_TEXT
#undef UMF_PARAM_PARSED
