/* UMF_LOG: any text is read; the result is a valid configuration that can be written with. */
#include "fuzz/support.h"

#include "base/log.h"

static void run(char *text, size_t length) {
    (void)length;
    umf_log_configure(text);
    umf_log_config_t config = umf_log_get_config();
    FUZZ_CHECK(config.level >= UMF_LOG_LEVEL_DEBUG && config.level <= UMF_LOG_LEVEL_FATAL);
    FUZZ_CHECK(config.flush_level >= UMF_LOG_LEVEL_DEBUG &&
               config.flush_level <= UMF_LOG_LEVEL_FATAL);
    FUZZ_CHECK(umf_log_set_config(&config) == UMF_RESULT_SUCCESS);
    char output[257];
    FUZZ_CHECK(umf_log_get_output(output, sizeof(output)) == UMF_RESULT_SUCCESS);
    for (int level = UMF_LOG_LEVEL_DEBUG; level <= UMF_LOG_LEVEL_FATAL; level++) {
        umf_log_write((umf_log_level_t)level, level, "fuzz", "level %d to %s", level, output);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_run(data, size, run);
    return 0;
}
