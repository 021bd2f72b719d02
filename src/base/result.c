#include <umf/result.h>

#include "base/common.h"

UMF_API_EXT_1 const char *umfResultName(umf_result_t result) {
    switch (result) {
#define UMF_RESULT(code, text)                                                                     \
    case code:                                                                                     \
        return #code;
#include "base/result.def"
#undef UMF_RESULT
    }
    return "UMF_RESULT_?";
}

UMF_API_EXT_1 const char *umfResultText(umf_result_t result) {
    switch (result) {
#define UMF_RESULT(code, text)                                                                     \
    case code:                                                                                     \
        return text;
#include "base/result.def"
#undef UMF_RESULT
    }
    return "this is no result code of the library";
}
