/*
 * The tests that an emulator cannot run. Programs of another architecture run in qemu-user
 * (test/CMakeLists.txt), which hands system calls on to the kernel of this machine and is not
 * faithful in all of them. Each test that fails for that is named here with the failure seen, and
 * is skipped with these words; the other tests of its program run. Seen with qemu 7.2.
 */
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

struct Limit {
    const char *seen;
    std::vector<const char *> tests; // a last '*' stands for anything
};

const Limit limits[] = {
    // processes and threads
    {"the emulator has a thread of its own, so a process does not end with its other threads",
     {"broker.AProcessEndsWithItsFirstThread"}},
    {"the child of a fork in a process with threads cannot start one: qemu_plugin_vcpu_init_hook "
     "fails",
     {"broker.AChildThatExportsHasItsOwn", "os.EndedProducer",
      "os.ChildDoesNotDisturbItsParentsFile", "Attach.*", "IpcSignals.*", "IpcFork.*",
      "Each/IpcState.*", "Reclaim.TheBackgroundThreadStopsAndStarts",
      "Blocked.TheBackgroundThreadReadsItsSettingWhileItIsTurnedOff", "Each/BrokerFork.*",
      "Memory/Life.TheChildOfAProducerSharesOnlyWhatItMakes/Anonymous",
      "Memory/Life.TheChildOfAProducerSharesOnlyWhatItMakes/Vmm",
      "record.a_child_of_fork_does_not_record", "Arena.AChildOfForkSharesForItself"}},
    {"a thread is seen in /proc for a moment after it was joined",
     {"broker.EveryFailureLeavesNothing"}},
    {"a process sees the start time of its parent in its /proc/self/stat",
     {"os.start_time_is_read_again_after_fork",
      "os.start_time_of_a_child_is_the_one_it_sees_itself"}},
    {"without MADV_WIPEONFORK a process looks itself up in each call, and that fails first",
     {"Producers.AreMetOnce", "Producers.ThoseUsedLastAreKept"}},

    // addresses
    {"each mapping gets addresses that none had before, so tables of addresses grow",
     {"Import.ALifeLeavesNoMetadataBehind", "Over/ProxyRest.NoMetadataIsLost/*",
      "Each/Faults.NothingGrows/*", "Memory/Ipc.RefusesAHandleReplayedAfterAReallocation/*",
      "Memory/Ipc.AThousandOpensLeaveNothingBehind/*"}},
    {"a mapping is not made at the requested address, though it is free",
     {"os.WhatIsOpenedOfAFileLiesAsInTheFile"}},
    {"mappings lie side by side, with nothing between them",
     {"os_reuse.AMappingThatEndsInAnExtentIsNoMapping"}},
    {"with pages larger than the kernel's a mapping behind the end of a file is not of the file",
     {"file.GrowsInOnePiece", "file.FsdaxHasPagesOf2MiB", "file.FsdaxSharesWholePages"}},
    {"setrlimit() of RLIMIT_AS has no effect",
     {"MapLimit.AddressesAreReservedOnlyWhereTheyAreNotLimited", "file.LittleAddressSpace"}},
    {"/proc/self/statm is that of the emulator",
     {"place.reserved_addresses_are_aligned_and_nothing_else",
      "place.a_failed_reservation_keeps_no_addresses", "file.DestroyUnmapsAndKeepsTheFile",
      "file.EveryFailureLeavesNothing",
      "Each/Store.of_ordinary_memory_is_retained_until_a_trim/*"}},
    {"mmap() of terabytes takes minutes, as each page is noted",
     {"file.SizesAndAlignments", "file.WhatCannotFitIsNotTried"}},

    // advice
    {"madvise() succeeds where nothing is mapped",
     {"meta.large_blocks_go_back_to_the_system", "os.map_protect_advise_unmap"}},
    {"MADV_REMOVE succeeds and does nothing",
     {"os.SharedPurgeReachesTheFile", "Each/Provider.Purge/os_shared"}},
    {"MADV_HUGEPAGE succeeds and does nothing", {"os.HugePagesAreAskedForFromEightMiBOn"}},
    {"mincore() fails for memory without access", {"os.FreedMemoryComesBackAsNew"}},

    // other calls
    {"mmap() with MAP_SYNC fails with EINVAL, not EOPNOTSUPP",
     {"os.a_folder_in_the_place_of_dax_devices", "devdax.CharacterDevicesThatAreNotDax"}},
    {"rt_sigprocmask() ends the emulator, not with EFAULT, when its memory goes meanwhile",
     {"CopyRace.copies_beside_frees_suspends_and_trims_are_right_or_refused"}},
    {"unshare() of a user namespace in a child ends it",
     {"record.a_file_system_without_room_ends_the_growth_and_not_the_program"}},
    {"there is no memfd_secret()",
     {"os.SharedMemoryOfMemfdSecretOnRequest", "os.MemfdSecretThatFailsIsExplained"}},
    {"recvmsg() takes more descriptors than there is room for, and loses them",
     {"broker.OnlyOneDescriptorIsTaken"}},
};

bool matches(const std::string &name, const char *pattern) {
    size_t length = strlen(pattern);
    return pattern[length - 1] == '*' ? name.compare(0, length - 1, pattern, length - 1) == 0
                                      : name == pattern;
}

const char *limit_of(const std::string &name) {
    for (const Limit &limit : limits) {
        for (const char *pattern : limit.tests) {
            if (matches(name, pattern)) {
                return limit.seen;
            }
        }
    }
    return nullptr;
}

// A test that is skipped before it is made does not run.
class Skips : public testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo &test) override {
        std::string name = std::string(test.test_suite_name()) + "." + test.name();
        if (const char *seen = limit_of(name)) {
            GTEST_SKIP() << "the emulator: " << seen;
        }
    }
};

[[maybe_unused]] const bool is_listening = [] {
    testing::UnitTest::GetInstance()->listeners().Append(new Skips);
    return true;
}();

} // namespace
