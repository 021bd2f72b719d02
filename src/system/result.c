#include <umf/result.h>

#include "system/common.h"

UMF_API_EXT_1 const char *umfResultName(umf_result_t result) {
    switch (result) {
#define UMF_RESULT(code, text)                                                                     \
    case code:                                                                                     \
        return #code;
#include "system/result.def"
#undef UMF_RESULT
    }
    return "UMF_RESULT_?";
}

UMF_API_EXT_1 const char *umfResultText(umf_result_t result) {
    switch (result) {
#define UMF_RESULT(code, text)                                                                     \
    case code:                                                                                     \
        return text;
#include "system/result.def"
#undef UMF_RESULT
    }
    return "this is no result code of the library";
}
