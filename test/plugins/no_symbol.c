/* A shared library that is no plugin. */
extern const int umf_test_not_a_plugin;
const int umf_test_not_a_plugin = 1;
