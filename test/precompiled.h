// What most test programs include, compiled once for all of them (test/CMakeLists.txt). A test
// includes what it needs all the same: -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without this
// file.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>
