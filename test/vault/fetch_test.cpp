// umfVaultFetch over UCX of this machine: from umf-remote, and from servers of this test that do
// what umf-remote never does. Each case of FetchMatrix has 20 rounds in a long run, and with
// UMF_TEST_SCALE=1000 there are 200.
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <tuple>

#include <umf.h>
#include <umf/reason.h>
#include <umf/remote.h>
#include <umf/text.h>

#include "fakes/log_file.h"
#include "fakes/namespaces.h"
#include "fakes/remote_range.h"
#include "fakes/role.h"
#include "fakes/scale.h"
#include "fakes/shared_bytes.h"
#include "vault/service.h"

extern "C" {
#include "ext/fetch/wire.h"
#include "system/checksum.h"
}

namespace {

// A context that is destroyed at the end. It uses UCX, also on this machine, unless flags are 0.
struct Context {
    umf_remote_handle_t handle = nullptr;

    explicit Context(const std::string &key_file = "", unsigned flags = UMF_REMOTE_NETWORK_ONLY,
                     uint64_t deadline_ms = 60000) {
        umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
        params.deadline_ms = deadline_ms;
        params.flags = flags;
        params.key_file = key_file.empty() ? nullptr : key_file.c_str();
        EXPECT_EQ(umfRemoteCreate(&params, &handle), OK);
    }
    ~Context() {
        umfRemoteDestroy(handle);
    }
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;
};

std::string address_of(const std::string &bytes) {
    std::string address = UMF_FETCH_PREFIX;
    for (char byte : bytes) {
        char digits[3];
        snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(byte));
        address += digits;
    }
    return address;
}

// A server of this test: each entry has memory of its own. Its table can be changed, and its memory
// be other than its digests say.
class Fake {
  public:
    struct Entry {
        std::string key, content;
        unsigned flags;
        char *block;
        umf_remote_export_handle_t published;
    };

    Context context;
    std::vector<Entry> entries; // by key
    std::vector<char> table;

    Fake() : context("", 0) {
        EXPECT_EQ(umfPoolCreateFromText("proxy over os", &pool), OK);
        directory = static_cast<umf_fetch_directory_t *>(block_of(sizeof(*directory)));
        EXPECT_EQ(publish(directory, sizeof(*directory), &published), OK);
    }
    ~Fake() {
        umfRemoteDestroy(context.handle);
        context.handle = nullptr;
        for (void *block : blocks) {
            umfFree(block);
        }
        umfPoolDestroy(pool);
    }

    void add(const std::string &key, const std::string &content, unsigned flags = 0) {
        Entry entry = {key, content, flags, nullptr, nullptr};
        entry.block = static_cast<char *>(block_of(content.size()));
        memcpy(entry.block, content.data(), content.size());
        EXPECT_EQ(publish(entry.block, content.size(), &entry.published), OK);
        entries.push_back(entry);
    }
    void make_table(uint64_t generation = 1) {
        std::string digests, bytes;
        std::vector<umf_fetch_run_t> runs;
        std::vector<umf_fetch_entry_t> list;
        for (const Entry &entry : entries) {
            bool is_zero = entry.flags & UMF_VAULT_ZERO;
            std::string handle = is_zero ? "" : bytes_of(entry.published);
            runs.push_back({entry.content.size(), bytes.size(),
                            static_cast<uint32_t>(handle.size()), entry.flags});
            bytes += handle;
            list.push_back({0, entry.content.size(), bytes.size(), digests.size() / 8,
                            static_cast<uint32_t>(list.size()), 0,
                            static_cast<uint8_t>(entry.key.size()),
                            static_cast<uint8_t>(entry.flags)});
            bytes += entry.key + '\0';
            for (size_t at = 0; at < entry.content.size() && !is_zero; at += UMF_FETCH_PIECE) {
                uint64_t sum =
                    umf_sum(entry.content.data() + at,
                            std::min<size_t>(UMF_FETCH_PIECE, entry.content.size() - at));
                digests.append(reinterpret_cast<char *>(&sum), sizeof(sum));
            }
        }
        umf_fetch_head_t head = {};
        head.magic = UMF_FETCH_TABLE;
        head.generation = generation;
        head.digests = digests.size() / 8;
        head.runs = static_cast<uint32_t>(runs.size());
        head.entries = static_cast<uint32_t>(list.size());
        table.clear();
        append(&head, sizeof(head));
        append(runs.data(), runs.size() * sizeof(runs[0]));
        append(list.data(), list.size() * sizeof(list[0]));
        append(digests.data(), digests.size());
        append(bytes.data(), bytes.size());
        reinterpret_cast<umf_fetch_head_t *>(table.data())->size = table.size();
    }
    // Publishes the table as it is now, with the right sum.
    void show(uint64_t generation = 1) {
        auto *head = reinterpret_cast<umf_fetch_head_t *>(table.data());
        umf_remote_export_handle_t at;
        head->check = umf_sum(head + 1, table.size() - sizeof(*head));
        char *block = static_cast<char *>(block_of(table.size()));
        memcpy(block, table.data(), table.size());
        ASSERT_EQ(publish(block, table.size(), &at), OK);
        std::string handle = bytes_of(at);
        umf_fetch_directory_t made = {};
        made.magic = UMF_FETCH_DIRECTORY;
        made.generation = generation;
        made.table_size = table.size();
        made.handle_size = handle.size();
        memcpy(made.handle, handle.data(), handle.size());
        set(made);
    }
    void set(umf_fetch_directory_t made) {
        made.check = umf_sum_of_fields(&made, sizeof(made), &made.check);
        write_shared(directory, &made, sizeof(made));
    }
    umf_fetch_head_t *head() {
        return reinterpret_cast<umf_fetch_head_t *>(table.data());
    }
    umf_fetch_run_t *runs() {
        return reinterpret_cast<umf_fetch_run_t *>(head() + 1);
    }
    umf_fetch_entry_t *list() {
        return reinterpret_cast<umf_fetch_entry_t *>(runs() + head()->runs);
    }
    std::string address() const {
        return address_of(bytes_of(published));
    }

  private:
    umf_memory_pool_handle_t pool = nullptr;
    umf_fetch_directory_t *directory = nullptr;
    umf_remote_export_handle_t published = nullptr;
    std::vector<void *> blocks;

    void *block_of(size_t size) {
        blocks.push_back(umfPoolMalloc(pool, size));
        memset(blocks.back(), 0, size);
        return blocks.back();
    }
    umf_result_t publish(void *block, size_t size, umf_remote_export_handle_t *to) {
        return umfRemotePublish(context.handle, block, size, UMF_REMOTE_GET, to);
    }
    void append(const void *bytes, size_t size) {
        const char *from = static_cast<const char *>(bytes);
        table.insert(table.end(), from, from + size);
    }
};

std::string noise(size_t size, unsigned seed) {
    std::string made(size, '\0');
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1664525 + 1013904223;
        made[i] = static_cast<char>(seed >> 24);
    }
    return made;
}

// A process that fetches: <name> <address>
int fetcher(Socket &socket, const std::string &argument) {
    size_t at = argument.find(' ');
    Vault vault(argument.substr(0, at).c_str());
    Context context;
    umf_result_t result =
        umfVaultFetch(vault.handle, context.handle, argument.substr(at).c_str(), nullptr, nullptr);
    socket.send(std::to_string(result));
    return 0;
}

// A process that fetches into a folder of a file system without room, then with it.
//   argument: <folder> <address>
int fetcher_without_room(Socket &socket, const std::string &argument) {
    std::string folder = argument.substr(0, argument.find(' '));
    std::string from = argument.substr(folder.size());
    if (!enter_namespaces(CLONE_NEWNS) || !hide_mounts() ||
        mount("umf", folder.c_str(), "tmpfs", 0, "size=3M") != 0) {
        socket.send(std::string("no file system can be mounted here: ") + strerror(errno));
        return 0;
    }
    Vault vault(("file:" + folder + "/vault").c_str());
    Context context;
    auto fetch = [&] {
        umf_result_t result =
            umfVaultFetch(vault.handle, context.handle, from.c_str(), nullptr, nullptr);
        return std::to_string(result) + (result == OK ? "" : std::string(" ") + umfLastErrorText());
    };
    std::string first = fetch();
    if (umfLastReason() != UMF_REASON_EXHAUSTED) {
        first += "; another reason";
    }
    for (const auto &entry : std::filesystem::directory_iterator(folder + "/vault")) {
        first += "; file " + entry.path().filename().string();
    }
    mount("umf", folder.c_str(), "tmpfs", MS_REMOUNT, "size=64M");
    socket.send(first);
    std::string second = fetch();
    View view(vault);
    umf_vault_entry_t entry = view.find("a");
    std::string content(static_cast<char *>(entry.ptr), entry.ptr ? entry.size : 0);
    socket.send(second + (content == noise(5 * MiB, 1) ? " and the content" : ""));
    return 0;
}

const Roles roles = {{"fetcher", fetcher}, {"fetcher_without_room", fetcher_without_room}};

class Fetch : public Vaults {
  public:
    void SetUp() override {
        char text[512];
        if (umfRemoteProbe(text, sizeof(text)) != OK) {
            GTEST_SKIP() << text;
        }
        Vaults::SetUp();
    }
    void TearDown() override {
        for (pid_t pid : servers) {
            stop(pid, SIGKILL);
        }
        if (!place.empty()) {
            Vaults::TearDown();
        }
    }

    // Starts umf-remote and waits for its addresses, in the file with this name.
    pid_t serve(const std::string &file, const std::vector<std::string> &words = {"model"}) {
        std::vector<std::string> all = {"serve", "--write", place + "/" + file};
        all.insert(all.end(), words.begin(), words.end());
        pid_t pid = run(all);
        servers.push_back(pid);
        EXPECT_TRUE(until([&] { return access((place + "/" + file).c_str(), R_OK) == 0; }));
        return pid;
    }
    static pid_t run(const std::vector<std::string> &words) {
        std::vector<char *> list = {const_cast<char *>(UMF_TEST_UMF_REMOTE)};
        pid_t pid = -1;
        for (const std::string &word : words) {
            list.push_back(const_cast<char *>(word.c_str()));
        }
        list.push_back(nullptr);
        EXPECT_EQ(posix_spawn(&pid, UMF_TEST_UMF_REMOTE, nullptr, nullptr, list.data(), environ),
                  0);
        return pid;
    }
    static int wait_for(pid_t pid) {
        int status = -1;
        waitpid(pid, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    int stop(pid_t pid, int number) {
        servers.erase(std::remove(servers.begin(), servers.end(), pid), servers.end());
        kill(pid, number);
        return wait_for(pid);
    }
    std::string address(const std::string &file) const {
        std::ifstream from(place + "/" + file);
        std::string name, address;
        from >> name >> address;
        return address;
    }
    static umf_result_t fetch(const Vault &vault, const Context &context, const std::string &from,
                              uint64_t *generation = nullptr,
                              const umf_vault_fetch_params_t *params = nullptr) {
        return umfVaultFetch(vault.handle, context.handle, from.c_str(), params, generation);
    }
    static std::string content(const View &view, const std::string &key) {
        umf_vault_entry_t entry = view.find(key);
        return entry.ptr ? std::string(static_cast<char *>(entry.ptr), entry.size) : "";
    }

  private:
    std::vector<pid_t> servers;
};

TEST_F(Fetch, AGenerationOfUmfRemote) {
    Vault model;
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.identity = "who";
    params.identity_size = 3;
    Draft draft(model, &params);
    draft.fill(20, 5);
    std::string large = noise(11 * MiB + 5, 1);
    memcpy(draft.put("large", large.size()), large.data(), large.size());
    umf_memory_pool_handle_t shared = draft.pool;
    ASSERT_EQ(umfVaultDraftPool(draft.handle, "coalescing over linux_vmm", &draft.pool), OK);
    memset(draft.put("private", 5000, UMF_VAULT_PRIVATE), 'p', 5000);
    ASSERT_EQ(umfVaultDraftPool(draft.handle, "coalescing over linux_vmm", &draft.pool), OK);
    draft.put("zero", 7 * MiB, UMF_VAULT_ZERO);
    draft.pool = shared;
    ASSERT_EQ(draft.commit(), OK);
    pid_t server = serve("served");

    Context context;
    Vault copy("copy");
    umf_vault_fetch_params_t with_sums = UMF_VAULT_FETCH_PARAMS_INIT;
    with_sums.digest = 1;
    uint64_t generation = 0;
    ASSERT_EQ(fetch(copy, context, address("served"), &generation, &with_sums), OK);
    EXPECT_EQ(generation, 1u);
    {
        View view(copy);
        ASSERT_EQ(view.attached, OK);
        EXPECT_EQ(view.wrong(20, 5), 0u);
        EXPECT_EQ(content(view, "large"), large);
        EXPECT_EQ(content(view, "private"), std::string(5000, 'p'));
        EXPECT_EQ(view.find("private").flags, unsigned{UMF_VAULT_PRIVATE});
        EXPECT_EQ(view.find("zero").flags, unsigned{UMF_VAULT_ZERO});
        EXPECT_EQ(view.find("zero").size, 7 * MiB);
        EXPECT_EQ(std::string(static_cast<const char *>(view.find(key_of(3)).note), 3), "lay");
        EXPECT_EQ(umfVaultVerify(view.handle, nullptr), OK);
        const void *identity = nullptr;
        size_t size = 0;
        ASSERT_EQ(umfVaultViewIdentity(view.handle, &identity, &size), OK);
        EXPECT_EQ(std::string(static_cast<const char *>(identity), size), "who");
    }
    // The same without UCX.
    Context here("", 0);
    Vault other("other");
    ASSERT_EQ(fetch(other, here, address("served")), OK);
    EXPECT_EQ(View(other).wrong(20, 5), 0u);
    EXPECT_TRUE(content(View(other), "large") == large);
    // Nothing differs: no generation is made.
    EXPECT_EQ(fetch(copy, context, address("served"), &generation), OK);
    EXPECT_EQ(generation, 1u);
    EXPECT_EQ(copy.stat().current, 1u);
    // The server follows its vault.
    write_generation(model, 21, 6);
    EXPECT_TRUE(until([&] {
        return fetch(copy, context, address("served"), &generation) == OK && generation == 2;
    }));
    View view(copy);
    EXPECT_EQ(view.wrong(21, 6), 0u);
    EXPECT_EQ(view.find("large").ptr, nullptr);
    EXPECT_EQ(stop(server, SIGTERM), 0);
    EXPECT_NE(access((place + "/served").c_str(), F_OK), 0);
}

TEST_F(Fetch, AnotherGenerationWithTheSameNumberIsServed) {
    Vault copy("copy");
    {
        Vault model;
        write_generation(model, 3, 1);
    }
    pid_t server = serve("served");
    Context context;
    ASSERT_EQ(fetch(copy, context, address("served")), OK);
    EXPECT_EQ(View(copy).wrong(3, 1), 0u);
    kill(server, SIGSTOP);
    {
        Vault model;
        EXPECT_EQ(umfVaultDrop(model.handle, 0), OK);
    }
    Vault model;
    write_generation(model, 3, 2);
    EXPECT_EQ(model.stat().current, 1u);
    kill(server, SIGCONT);
    EXPECT_TRUE(until([&] {
        return fetch(copy, context, address("served")) == OK && View(copy).wrong(3, 2) == 0;
    }));
    EXPECT_EQ(stop(server, SIGTERM), 0);
}

// Both processes of the service end, and another one comes as far before the server looks again.
TEST_F(Fetch, AnotherServiceWithTheSameNumbersIsNoticed) {
    std::optional<Vault> model(std::in_place);
    write_generation(*model, 3, 1);
    const uint64_t event = model->stat().event, service = model->stat().service;
    EXPECT_NE(service, 0u);
    pid_t server = serve("served");
    kill(server, SIGSTOP);
    for (int signal : {SIGSTOP, SIGKILL}) {
        for (pid_t pid : {keeper(), daemon()}) {
            kill(pid, signal);
        }
    }
    model.emplace();
    write_generation(*model, 3, 2);
    EXPECT_EQ(model->stat().event, event);
    EXPECT_EQ(model->stat().current, 1u);
    EXPECT_NE(model->stat().service, service);
    kill(server, SIGCONT);
    Vault copy("copy");
    Context context;
    EXPECT_TRUE(until([&] {
        return fetch(copy, context, address("served")) == OK && View(copy).wrong(3, 2) == 0;
    }));
    EXPECT_EQ(stop(server, SIGTERM), 0);
}

TEST_F(Fetch, AFolderThatWasMadeAgainIsNoticed) {
    const std::string folder = place + "/folder", name = "file:" + folder;
    {
        Vault model(name.c_str());
        write_generation(model, 3, 1);
    }
    pid_t server = serve("served", {name});
    Vault copy("copy");
    Context context;
    ASSERT_EQ(fetch(copy, context, address("served")), OK);
    EXPECT_EQ(View(copy).wrong(3, 1), 0u);
    kill(server, SIGSTOP);
    std::filesystem::remove_all(folder);
    Vault model(name.c_str());
    EXPECT_EQ(write_generation(model, 3, 2), 1u);
    kill(server, SIGCONT);
    EXPECT_TRUE(until([&] {
        return fetch(copy, context, address("served")) == OK && View(copy).wrong(3, 2) == 0;
    }));
    EXPECT_EQ(stop(server, SIGTERM), 0);
}

// The server has no room for the descriptors of a generation. It serves the former one, and tries
// again.
TEST_F(Fetch, AGenerationThatCouldNotBeServedIsTriedAgain) {
    Vault model, copy("copy");
    write_generation(model, 3, 1);
    pid_t server = serve("served");
    rlimit limit;
    ASSERT_EQ(prlimit(server, RLIMIT_NOFILE, nullptr, &limit), 0);
    const std::filesystem::directory_iterator open("/proc/" + std::to_string(server) + "/fd");
    rlimit low = {static_cast<rlim_t>(std::distance(begin(open), end(open))) + 8, limit.rlim_max};
    ASSERT_EQ(prlimit(server, RLIMIT_NOFILE, &low, nullptr), 0);
    {
        Draft draft(model, nullptr, "proxy over linux_vmm:piece_size=4K");
        for (size_t i = 0; i < 60; i++) {
            memset(draft.put(key_of(i), 4096), 'n', 4096);
        }
        ASSERT_EQ(draft.commit(), OK);
    }
    usleep(600000);
    ASSERT_EQ(prlimit(server, RLIMIT_NOFILE, &limit, nullptr), 0);
    Context context("", 0);
    ASSERT_EQ(fetch(copy, context, address("served")), OK);
    EXPECT_TRUE(until([&] {
        return fetch(copy, context, address("served")) == OK &&
               content(View(copy), key_of(59)) == std::string(4096, 'n');
    }));
    EXPECT_EQ(stop(server, SIGTERM), 0);
}

TEST_F(Fetch, AServerRemovesNoFileOfAnother) {
    Vault model;
    write_generation(model, 1, 1);
    pid_t former = serve("served");
    std::string path = place + "/served";
    ASSERT_EQ(rename(path.c_str(), (path + ".former").c_str()), 0);
    pid_t server = serve("served");
    EXPECT_EQ(stop(former, SIGTERM), 0);
    EXPECT_EQ(access(path.c_str(), F_OK), 0);
    EXPECT_EQ(stop(server, SIGTERM), 0);
    EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST_F(Fetch, TheProgramFetches) {
    Vault model;
    write_generation(model, 3, 1);
    pid_t server = serve("served");
    EXPECT_EQ(wait_for(run({"fetch", "--of", "model", "copy", "@" + place + "/served"})), 0);
    Vault copy("copy");
    EXPECT_EQ(View(copy).wrong(3, 1), 0u);
    EXPECT_EQ(wait_for(run({"fetch", "copy", "@" + place + "/served"})), 1) << "another name";
    EXPECT_EQ(wait_for(run({"fetch", "copy", "umfr:00"})), 1);
    EXPECT_EQ(wait_for(run({"fetch", "copy"})), 2);
    EXPECT_EQ(wait_for(run({"serve", "--digest", "model"})), 2);
    EXPECT_EQ(wait_for(run({"fetch", "--limit", "many", "copy", "umfr:00"})), 2);
    EXPECT_EQ(wait_for(run({"fetch", "--limit", "99999999999999999999", "copy", "umfr:00"})), 2);
    // A signal ends a fetch, also while it waits for a server.
    kill(server, SIGSTOP);
    pid_t pid =
        run({"fetch", "--deadline", "60000", "--of", "model", "copy", "@" + place + "/served"});
    std::string tasks = "/proc/" + std::to_string(pid) + "/task";
    EXPECT_TRUE(until([&] { // it has a second thread, so it connects
        struct stat found = {};
        return stat(tasks.c_str(), &found) == 0 && found.st_nlink > 3;
    }));
    kill(pid, SIGTERM);
    EXPECT_EQ(wait_for(pid), -1);
}

TEST_F(Fetch, ABadAddressIsRefused) {
    Context context;
    Vault copy("copy");
    std::string many;
    for (int i = 0; i < 17; i++) {
        many += "umfr:00 ";
    }
    for (const std::string &from :
         {std::string(), std::string(" , "), std::string("host:1"), std::string("umfr:0"),
          std::string("umfr:0g"), many, "umfr:" + std::string(4000, '0')}) {
        EXPECT_EQ(fetch(copy, context, from), BAD) << from;
    }
    EXPECT_EQ(umfVaultFetch(copy.handle, context.handle, nullptr, nullptr, nullptr), BAD);
    EXPECT_EQ(umfVaultFetch(copy.handle, nullptr, "umfr:00", nullptr, nullptr), BAD);
    EXPECT_EQ(copy.stat().current, 0u);
}

TEST_F(Fetch, OnlyWhatDiffersTravels) {
    Context context;
    Vault copy("copy");
    Fake fake;
    std::string large = noise(9 * MiB, 3);
    fake.add("a", noise(100000, 1));
    fake.add("aa", noise(4000, 2));
    fake.add("large", large);
    fake.add("left", noise(3 * MiB, 4));
    fake.make_table();
    fake.show();
    ASSERT_EQ(fetch(copy, context, fake.address()), OK);
    // What is the same is not read again: it would be refused.
    const std::string other(2 * UMF_FETCH_PIECE, 'x'), changed(MiB, 'y');
    write_shared(fake.entries[0].block, other.data(), 100000);
    write_shared(fake.entries[2].block, other.data(), other.size());
    write_shared(fake.entries[2].block + 2 * UMF_FETCH_PIECE, changed.data(), changed.size());
    memset(&fake.entries[2].content[2 * UMF_FETCH_PIECE], 'y', MiB);
    fake.entries.erase(fake.entries.begin() + 1); // "a" is in front of a key that has gone
    fake.make_table(2);
    fake.show(2);
    uint64_t generation = 0;
    ASSERT_EQ(fetch(copy, context, fake.address(), &generation), OK);
    EXPECT_EQ(generation, 2u);
    View view(copy);
    EXPECT_EQ(content(view, "a"), noise(100000, 1));
    EXPECT_EQ(content(view, "large"), large.substr(0, 2 * UMF_FETCH_PIECE) + std::string(MiB, 'y'));
    EXPECT_EQ(content(view, "left"), noise(3 * MiB, 4));
    EXPECT_EQ(view.find("aa").ptr, nullptr);
    umf_vault_fetch_params_t all = UMF_VAULT_FETCH_PARAMS_INIT;
    all.keep = 0;
    EXPECT_EQ(fetch(copy, context, fake.address(), nullptr, &all), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN);
    EXPECT_EQ(copy.stat().current, 2u);
    EXPECT_EQ(copy.stat().writer, 0u);
}

// Bytes between two gets are not compared: they must not come over content that is here already.
TEST_F(Fetch, ContentBetweenGetsStays) {
    Context context;
    Vault copy("copy");
    Fake fake;
    constexpr size_t SIZE = 10000;
    std::string kept = noise(SIZE, 2);
    fake.add("a", noise(SIZE, 1) + kept + noise(SIZE, 3)); // a, b and c are in its memory
    fake.add("b", kept);
    fake.add("c", noise(SIZE, 3));
    auto show = [&](uint64_t generation) {
        fake.make_table(generation);
        uint64_t *digests = reinterpret_cast<uint64_t *>(fake.list() + fake.head()->entries);
        fake.list()[0].size = SIZE;
        digests[0] = umf_sum(fake.entries[0].content.data(), SIZE);
        for (uint32_t i = 1; i < 3; i++) {
            fake.list()[i].run = 0;
            fake.list()[i].offset = i * SIZE;
        }
        fake.show(generation);
    };
    show(1);
    ASSERT_EQ(fetch(copy, context, fake.address()), OK);
    // Others than b change, and its memory at the server is damaged.
    fake.entries[0].content = noise(SIZE, 4) + kept + noise(SIZE, 5);
    fake.entries[2].content = noise(SIZE, 5);
    std::string damaged = noise(SIZE, 4) + std::string(SIZE, 'x') + noise(SIZE, 5);
    write_shared(fake.entries[0].block, damaged.data(), damaged.size());
    show(2);
    ASSERT_EQ(fetch(copy, context, fake.address()), OK);
    View view(copy);
    EXPECT_TRUE(content(view, "a") == noise(SIZE, 4));
    EXPECT_TRUE(content(view, "b") == kept);
    EXPECT_TRUE(content(view, "c") == noise(SIZE, 5));
}

TEST_F(Fetch, FormerGenerationsGo) {
    Context context;
    Vault copy("copy");
    Fake fake;
    for (unsigned i = 1; i <= 3; i++) {
        fake.entries.clear();
        fake.add("a", noise(MiB, i));
        fake.make_table(i);
        fake.show(i);
        ASSERT_EQ(fetch(copy, context, fake.address()), OK);
        EXPECT_TRUE(until([&] { return copy.stat().generations == 1; }));
    }
    EXPECT_TRUE(content(View(copy), "a") == noise(MiB, 3));
}

TEST_F(Fetch, MemoryWithoutAChangeIsShared) {
    Context context;
    Vault copy("copy", 0, 1);
    Fake fake;
    fake.add("base", noise(2 * MiB, 1));
    fake.add("head", noise(MiB / 2, 2));
    fake.make_table();
    fake.show();
    ASSERT_EQ(fetch(copy, context, fake.address()), OK);
    uint64_t before = copy.stat().bytes;
    fake.entries.pop_back();
    fake.add("head", noise(MiB / 2, 3));
    fake.make_table(2);
    fake.show(2);
    ASSERT_EQ(fetch(copy, context, fake.address()), OK);
    EXPECT_EQ(copy.stat().generations, 2u);
    EXPECT_LT(copy.stat().bytes, before + MiB);
    View view(copy);
    EXPECT_EQ(content(view, "base"), noise(2 * MiB, 1));
    EXPECT_EQ(content(view, "head"), noise(MiB / 2, 3));
    // Most of what is held is of no use: content is copied, so that the old memory goes.
    fake.entries.erase(fake.entries.begin());
    fake.make_table(3);
    fake.show(3);
    ASSERT_EQ(fetch(copy, context, fake.address()), OK);
    EXPECT_EQ(content(View(copy), "head"), noise(MiB / 2, 3));
}

TEST_F(Fetch, WrongContentIsRefused) {
    Context context;
    Vault copy("copy");
    Fake wrong, right;
    for (Fake *fake : {&wrong, &right}) {
        fake->add("a", noise(5 * MiB, 1));
        fake->add("b", noise(70000, 2));
        fake->make_table();
        fake->show();
    }
    char damaged = static_cast<char>(wrong.entries[0].content.back() ^ 1);
    write_shared(wrong.entries[0].block + 5 * MiB - 1, &damaged, 1);
    EXPECT_EQ(fetch(copy, context, wrong.address()), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN);
    EXPECT_EQ(copy.stat().current, 0u);
    ASSERT_EQ(fetch(copy, context, wrong.address() + " " + right.address()), OK);
    EXPECT_EQ(content(View(copy), "a"), noise(5 * MiB, 1));
}

TEST_F(Fetch, AServerThatLosesAPartIsReplaced) {
    Context context;
    Vault copy("copy");
    Fake first, second;
    for (Fake *fake : {&first, &second}) {
        for (size_t i = 0; i < 10; i++) {
            fake->add(key_of(i), noise(200000, static_cast<unsigned>(i)));
        }
        fake->make_table();
        fake->show();
    }
    for (size_t i = 5; i < 10; i++) {
        ASSERT_EQ(umfRemoteWithdraw(first.entries[i].published), OK);
    }
    EXPECT_EQ(fetch(copy, context, first.address()), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_STALE);
    EXPECT_EQ(copy.stat().current, 0u);
    ASSERT_EQ(fetch(copy, context, first.address() + "," + second.address()), OK);
    View view(copy);
    for (size_t i = 0; i < 10; i++) {
        EXPECT_EQ(content(view, key_of(i)), noise(200000, static_cast<unsigned>(i))) << i;
    }
}

TEST_F(Fetch, ServersWithOtherPlacesOrContent) {
    Context context;
    Vault model, copy("copy");
    // The same content, in one piece of memory there and in many here.
    Draft draft(model);
    std::vector<std::string> keys;
    for (size_t i = 0; i < 6; i++) {
        std::string bytes = noise(300000, static_cast<unsigned>(i));
        unsigned char *memory = static_cast<unsigned char *>(umfPoolMalloc(draft.pool, 300000));
        memcpy(memory, bytes.data(), bytes.size());
        ASSERT_EQ(umfVaultPut(draft.handle, key_of(i).c_str(), memory, 300000, nullptr, 0, 0), OK);
    }
    ASSERT_EQ(draft.commit(), OK);
    serve("served");
    Fake same, other;
    for (size_t i = 0; i < 6; i++) {
        same.add(key_of(i), noise(300000, static_cast<unsigned>(i)));
        other.add(key_of(i), noise(300000, static_cast<unsigned>(i) + 1));
    }
    same.make_table();
    same.show();
    other.make_table();
    other.show();
    // Its memory is wrong, so the fetch needs those behind it.
    for (Fake::Entry &entry : same.entries) {
        char damaged = static_cast<char>(entry.content[7] ^ 1);
        write_shared(entry.block + 7, &damaged, 1);
    }
    umf_vault_fetch_params_t all = UMF_VAULT_FETCH_PARAMS_INIT;
    all.keep = 0;
    for (const std::string &from :
         {same.address() + " " + other.address() + " " + address("served"),
          address("served") + " " + same.address()}) {
        ASSERT_EQ(fetch(copy, context, from, nullptr, &all), OK);
        View view(copy);
        for (size_t i = 0; i < 6; i++) {
            EXPECT_EQ(content(view, key_of(i)), noise(300000, static_cast<unsigned>(i))) << i;
        }
    }
}

TEST_F(Fetch, AnotherKeyIsRefused) {
    for (const char *name : {"/key", "/other"}) {
        int fd = open((place + name).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        std::string bytes = noise(32, name[1]);
        ASSERT_EQ(write(fd, bytes.data(), bytes.size()), 32);
        close(fd);
    }
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    std::string path = place + "/key";
    umf_remote_handle_t made = nullptr;
    params.key_file = path.c_str();
    if (umfRemoteCreate(&params, &made) == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        GTEST_SKIP() << umfLastErrorText();
    }
    umfRemoteDestroy(made);
    Vault model, copy("copy");
    write_generation(model, 2, 1);
    serve("served", {"--key-file", place + "/key", "model"});
    Context with(place + "/key"), other(place + "/other"), without;
    EXPECT_EQ(fetch(copy, other, address("served")), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_DENIED);
    EXPECT_EQ(fetch(copy, without, address("served")), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_DENIED);
    EXPECT_EQ(copy.stat().current, 0u);
    ASSERT_EQ(fetch(copy, with, address("served")), OK);
    EXPECT_EQ(View(copy).wrong(2, 1), 0u);
}

TEST_F(Fetch, WithoutAGenerationOrAServer) {
    Context context;
    Vault model, copy("copy");
    pid_t server = serve("served");
    EXPECT_EQ(fetch(copy, context, address("served")), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_ABSENT);
    std::string gone = address("served");
    stop(server, SIGKILL);
    EXPECT_EQ(fetch(copy, context, gone), LOST);
    EXPECT_EQ(umfLastReason(), UMF_REASON_GONE);
    Fake fake;
    fake.add("a", "content");
    fake.make_table();
    fake.show();
    EXPECT_EQ(fetch(copy, context, gone + " " + fake.address()), OK);
    EXPECT_EQ(content(View(copy), "a"), "content");
}

// The fetch has read the table and waits for the draft of another client.
class Meanwhile : public Fetch {
  protected:
    void fetch_meanwhile(const std::function<void(Fake &)> &change, umf_result_t expected,
                         umf_reason_t reason) {
        Context context;
        Vault copy("copy"), other("copy");
        Fake fake;
        write_generation(other, 1, 1);
        fake.add("a", noise(5 * MiB, 1));
        fake.add("b", noise(MiB, 3));
        fake.make_table();
        fake.show();
        Draft draft(other);
        umf_vault_fetch_params_t params = UMF_VAULT_FETCH_PARAMS_INIT;
        params.timeout_ms = 60000;
        params.in_flight = UMF_FETCH_PIECE; // one get after the other
        umf_result_t result = OK;
        umf_reason_t seen = UMF_REASON_NONE;
        std::string address = fake.address();
        uint64_t readers = copy.stat().readers;
        std::thread thread([&] {
            result = fetch(copy, context, address, nullptr, &params);
            seen = result == OK ? UMF_REASON_NONE : umfLastReason();
        });
        EXPECT_TRUE(until([&] { return other.stat().readers > readers; })); // of what it compares
        change(fake);
        umfVaultAbort(draft.handle);
        draft.handle = nullptr;
        thread.join();
        EXPECT_EQ(result, expected);
        EXPECT_EQ(seen, reason);
        View view(other);
        if (expected == OK) {
            EXPECT_EQ(content(view, "a"), fake.entries[0].content);
        } else {
            EXPECT_EQ(view.wrong(1, 1), 0u);
        }
        EXPECT_EQ(other.stat().writer, 0u);
    }
};

TEST_F(Meanwhile, TheServerHasANewGeneration) {
    fetch_meanwhile(
        [](Fake &fake) {
            umf_remote_export_handle_t former = fake.entries[0].published;
            fake.entries.clear();
            fake.add("a", noise(3 * MiB, 2));
            fake.make_table(2);
            fake.show(2);
            EXPECT_EQ(umfRemoteWithdraw(former), OK);
        },
        OK, UMF_REASON_NONE);
}

TEST_F(Meanwhile, TheServerDropsItsGeneration) {
    fetch_meanwhile(
        [](Fake &fake) {
            umf_fetch_directory_t none = {};
            none.magic = UMF_FETCH_DIRECTORY;
            fake.set(none);
            EXPECT_EQ(umfRemoteWithdraw(fake.entries[0].published), OK);
        },
        BAD, UMF_REASON_ABSENT);
}

TEST_F(Meanwhile, TheServerEnds) {
    fetch_meanwhile(
        [](Fake &fake) {
            umfRemoteDestroy(fake.context.handle);
            fake.context.handle = nullptr;
        },
        LOST, UMF_REASON_GONE);
}

// Its last entry is published anew, so its handle in the table that was read is stale.
TEST_F(Meanwhile, TheServerIsOpenedAgain) {
    LogFile log;
    fetch_meanwhile(
        [](Fake &fake) {
            Fake::Entry last = fake.entries.back();
            fake.entries.pop_back();
            fake.add(last.key, last.content);
            fake.make_table();
            fake.show();
            EXPECT_EQ(umfRemoteWithdraw(last.published), OK);
        },
        OK, UMF_REASON_NONE);
    EXPECT_EQ(log.count("opened again: 1 of 3 pieces"), 1u) << log.text();
}

TEST_F(Fetch, AServerIsKilledAndAnotherOneContinues) {
    Vault model, copy("copy");
    {
        Draft draft(model);
        for (size_t i = 0; i < 24; i++) {
            memset(draft.put(key_of(i), MiB), static_cast<int>(i + 1), MiB);
        }
        ASSERT_EQ(draft.commit(), OK);
    }
    pid_t first = serve("first");
    serve("second");
    Context context;
    umf_result_t result = BAD;
    std::string from = address("first") + " " + address("second");
    std::thread thread([&] { result = fetch(copy, context, from); });
    Vault other("copy");
    EXPECT_TRUE(until([&] { return other.stat().writer != 0 || other.stat().current != 0; }));
    stop(first, SIGKILL);
    thread.join();
    ASSERT_EQ(result, OK);
    View view(other);
    for (size_t i = 0; i < 24; i++) {
        EXPECT_TRUE(content(view, key_of(i)) == std::string(MiB, static_cast<char>(i + 1)));
    }
}

TEST_F(Fetch, AClientThatIsKilledLeavesNothing) {
    Vault model, copy("copy");
    {
        Draft draft(model);
        memset(draft.put("a", 24 * MiB), 'a', 24 * MiB);
        ASSERT_EQ(draft.commit(), OK);
    }
    serve("served");
    {
        Process process("fetcher", "copy " + address("served"));
        EXPECT_TRUE(until([&] { return copy.stat().writer != 0 || copy.stat().current != 0; }));
    }
    EXPECT_TRUE(until([&] { return copy.stat().writer == 0; }));
    umf_vault_stat_t stat = copy.stat();
    EXPECT_TRUE(stat.current == 1 || stat.bytes == 0);
    Context context;
    ASSERT_EQ(fetch(copy, context, address("served")), OK);
    EXPECT_TRUE(content(View(copy), "a") == std::string(24 * MiB, 'a'));
}

TEST_F(Fetch, LimitsOfTheClient) {
    Context context;
    Fake fake;
    fake.add("a", noise(5 * MiB, 1));
    fake.make_table();
    fake.show();
    Vault copy("copy"), little("little", 2 * MiB);
    umf_vault_fetch_params_t params = UMF_VAULT_FETCH_PARAMS_INIT;
    params.limit = 5 * MiB - 1;
    EXPECT_EQ(fetch(copy, context, fake.address(), nullptr, &params), LOST);
    EXPECT_EQ(umfLastReason(), UMF_REASON_LIMIT);
    EXPECT_EQ(fetch(little, context, fake.address()), LOST);
    EXPECT_EQ(umfLastReason(), UMF_REASON_LIMIT);
    EXPECT_EQ(little.stat().current, 0u);
    EXPECT_EQ(little.stat().writer, 0u);
    Fake small;
    small.add("a", noise(MiB, 2));
    small.make_table();
    small.show();
    ASSERT_EQ(fetch(little, context, small.address()), OK);
    EXPECT_EQ(content(View(little), "a"), noise(MiB, 2));
    // Memory that no machine has.
    fake.runs()[0].size = UINT64_C(1) << 55;
    fake.show();
    EXPECT_NE(fetch(copy, context, fake.address()), OK);
    EXPECT_EQ(copy.stat().current, 0u);
    // A folder: the disk refuses the file.
    std::string folder = "file:" + place + "/folder";
    fake.make_table();
    fake.show();
    Vault file(folder.c_str());
    ASSERT_EQ(fetch(file, context, fake.address()), OK);
    EXPECT_EQ(content(View(file), "a"), noise(5 * MiB, 1));
}

// Reports of a fetch, which end it on demand.
struct Reports {
    std::vector<std::pair<uint64_t, uint64_t>> seen;
    std::function<bool(uint64_t done, uint64_t size)> is_end;

    umf_vault_fetch_params_t params(std::function<bool(uint64_t, uint64_t)> ends) {
        umf_vault_fetch_params_t made = UMF_VAULT_FETCH_PARAMS_INIT;
        seen.clear();
        is_end = std::move(ends);
        made.timeout_ms = 60000;
        made.progress = add;
        made.progress_arg = this;
        return made;
    }
    static int add(uint64_t done, uint64_t size, void *arg) {
        auto *reports = static_cast<Reports *>(arg);
        reports->seen.emplace_back(done, size);
        return reports->is_end(done, size);
    }
};

TEST_F(Fetch, ProgressIsReportedAndEndsIt) {
    constexpr umf_result_t ENDED = UMF_RESULT_ERROR_USER_SPECIFIC;
    const auto never = [](uint64_t, uint64_t) { return false; };
    const auto at_once = [](uint64_t, uint64_t size) { return size == 0; };
    const auto at_end = [](uint64_t done, uint64_t size) { return size && done == size; };
    Context context;
    Vault copy("copy"), other("copy");
    Fake fake;
    fake.add("a", noise(9 * MiB, 1));
    fake.add("b", noise(1000, 2));
    fake.add("zero", std::string(MiB, '\0'), UMF_VAULT_ZERO);
    fake.make_table();
    fake.show();
    const uint64_t size = 9 * MiB + 1000;
    Reports reports;
    const auto fetches = [&](const std::function<bool(uint64_t, uint64_t)> &ends) {
        umf_vault_fetch_params_t params = reports.params(ends);
        umf_result_t result = fetch(copy, context, fake.address(), nullptr, &params);
        EXPECT_EQ(copy.stat().writer, 0u);
        EXPECT_EQ(copy.stat().readers, 0u);
        return result;
    };
    EXPECT_EQ(fetches(at_once), ENDED);
    EXPECT_EQ(reports.seen.size(), 1u);
    EXPECT_EQ(umfLastReason(), UMF_REASON_NONE);
    EXPECT_EQ(fetches(at_end), ENDED);
    EXPECT_EQ(copy.stat().current, 0u);
    ASSERT_EQ(fetches(never), OK);
    EXPECT_EQ(reports.seen.back(), std::make_pair(size, size));
    for (size_t i = 1; i < reports.seen.size(); i++) {
        EXPECT_LE(reports.seen[i - 1].first, reports.seen[i].first);
    }
    EXPECT_EQ(content(View(copy), "a"), noise(9 * MiB, 1));
    // Nothing differs.
    EXPECT_EQ(fetches(at_end), ENDED);
    ASSERT_EQ(fetches(never), OK);
    EXPECT_EQ(reports.seen.back(), std::make_pair(size, size));
    // One piece is copied, one travels; another client writes meanwhile.
    fake.entries[0].content[0] ^= 1;
    write_shared(fake.entries[0].block, fake.entries[0].content.data(), 1);
    fake.make_table(2);
    fake.show(2);
    {
        Draft draft(other);
        umf_vault_fetch_params_t params =
            reports.params([&](uint64_t done, uint64_t) { return done >= size - 4 * MiB; });
        EXPECT_EQ(fetch(copy, context, fake.address(), nullptr, &params), ENDED);
        EXPECT_EQ(reports.seen.back(), std::make_pair(size - 4 * MiB, size));
    }
    ASSERT_EQ(fetches(never), OK);
    EXPECT_EQ(reports.seen.back(), std::make_pair(size, size));
    EXPECT_TRUE(content(View(copy), "a") == fake.entries[0].content);
}

TEST_F(Fetch, AFileSystemWithoutRoom) {
    Fake fake;
    fake.add("a", noise(5 * MiB, 1));
    fake.make_table();
    fake.show();
    ASSERT_EQ(mkdir((place + "/full").c_str(), 0700), 0);
    Process process("fetcher_without_room", place + "/full " + fake.address());
    std::string first = process.socket.receive();
    if (first.find("no file system") == 0) {
        GTEST_SKIP() << first;
    }
    EXPECT_EQ(first, std::to_string(LOST) + " file:" + place +
                         "/full/vault: writing a generation: No space left on device; file lock");
    EXPECT_EQ(process.socket.receive(), "0 and the content");
}

TEST_F(Fetch, ADamagedTableIsRefused) {
    Context context;
    Vault copy("copy");
    Fake fake;
    fake.add("a", noise(5 * MiB, 1));
    fake.add("b", noise(700, 2));
    fake.add("c", noise(MiB, 3), UMF_VAULT_ZERO);
    const std::function<void()> damages[] = {
        [&] { fake.head()->magic++; },
        [&] { fake.head()->size++; },
        [&] { fake.head()->entries = 0xffffffff; },
        [&] { fake.head()->runs = 0x10000; },
        [&] { fake.head()->digests = UINT64_MAX / 8; },
        [&] { fake.head()->digests--; },
        [&] { fake.head()->identity = 5000; },
        [&] { fake.head()->entries = 2; },
        [&] { fake.list()[0].run = 3; },
        [&] { fake.list()[0].run = 2; },
        [&] { fake.list()[0].offset = UINT64_MAX; },
        [&] { fake.list()[0].size = 0; },
        [&] { fake.list()[0].size = 6 * MiB; },
        [&] { fake.list()[0].key = UINT64_MAX - 1; },
        [&] { fake.list()[0].key_size = 200; },
        [&] { fake.list()[0].key_size = 0; },
        [&] { fake.list()[0].note_size = 60000; },
        [&] { fake.list()[1].digest++; },
        [&] { fake.list()[1].flags = 3; },
        [&] { std::swap(fake.list()[0].key, fake.list()[1].key); },
        [&] { fake.runs()[0].size = UINT64_MAX; },
        [&] { fake.runs()[0].size = 0; },
        [&] { fake.runs()[0].handle = UINT64_MAX; },
        [&] { fake.runs()[0].handle_size = 0; },
        [&] { fake.runs()[0].handle_size = 5000; },
        [&] { fake.runs()[2].handle_size = 5; },
        [&] { fake.runs()[1].flags = 8; },
        [&] { fake.table.resize(100); },
    };
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        fake.make_table();
        damages[i]();
        fake.show();
        EXPECT_EQ(fetch(copy, context, fake.address()), BAD) << i;
        EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN) << i;
    }
    // Bytes by chance: refused, or the same content.
    unsigned seed = 7;
    for (int i = 0; i < 40; i++) {
        fake.make_table();
        for (int j = 0; j < 3; j++) {
            seed = seed * 1664525 + 1013904223;
            fake.table[sizeof(umf_fetch_head_t) +
                       seed % (fake.table.size() - sizeof(umf_fetch_head_t))] =
                static_cast<char>(seed >> 24);
        }
        fake.show();
        umf_vault_fetch_params_t params = UMF_VAULT_FETCH_PARAMS_INIT;
        params.limit = 64 * MiB;
        fetch(copy, context, fake.address(), nullptr, &params);
    }
    EXPECT_EQ(copy.stat().writer, 0u);
    umf_fetch_directory_t wrong = {};
    wrong.magic = UMF_FETCH_DIRECTORY;
    wrong.generation = 1;
    wrong.table_size = UINT64_MAX;
    fake.set(wrong);
    EXPECT_EQ(fetch(copy, context, fake.address()), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN);
    wrong.table_size = 100;
    wrong.handle_size = 2000;
    fake.set(wrong);
    EXPECT_EQ(fetch(copy, context, fake.address()), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN);
}

// --- what happens to a server, before a fetch and in the middle of one ---

struct Row {
    const char *name;
    enum { Kill, Stop, End, Drop, Change } strike;
};

constexpr Row rows[] = {
    {"Killed", Row::Kill},
    {"Stopped", Row::Stop},
    {"Ends", Row::End},
    {"Dropped", Row::Drop},
    {"AnotherGeneration", Row::Change},
};

struct Outcome {
    umf_result_t result;
    umf_reason_t reason;
};

// row, by shared memory; every second round strikes while a fetch is under way
class FetchMatrix : public Fetch, public ::testing::WithParamInterface<std::tuple<Row, bool>> {
  protected:
    static constexpr size_t COUNT = 3, SIZE = UMF_FETCH_PIECE;
    std::unique_ptr<Vault> model, copy;
    char value = 'a'; // of the generation that is served
    size_t servers_begun = 0;
    std::string from;
    pid_t server = 0;

    void write_model() {
        Vault writer; // keeps what it has written mapped until it is closed
        Draft draft(writer);
        value = value == 'z' ? 'a' : static_cast<char>(value + 1);
        for (size_t i = 0; i < COUNT; i++) {
            memset(draft.put(key_of(i), SIZE), value, SIZE);
        }
        ASSERT_EQ(draft.commit(), OK);
    }
    void start_server() {
        std::string file = "served." + std::to_string(servers_begun++);
        server = serve(file);
        from = address(file);
    }
    // Gets one piece after the other, all of them.
    Outcome fetch_all(const Context &context) const {
        umf_vault_fetch_params_t params = UMF_VAULT_FETCH_PARAMS_INIT;
        params.keep = 0;
        params.in_flight = UMF_FETCH_PIECE;
        umf_result_t result = fetch(*copy, context, from, nullptr, &params);
        return {result, result == OK ? UMF_REASON_NONE : umfLastReason()};
    }
    // The byte that all of the current generation has; 0: there is another one, or none.
    char value_here() const {
        View view(*copy);
        char first = 0;
        for (size_t i = 0; i < COUNT && view.attached == OK; i++) {
            umf_vault_entry_t entry = view.find(key_of(i));
            const char *bytes = static_cast<const char *>(entry.ptr);
            if (entry.size != SIZE || memcmp(bytes, bytes + 1, SIZE - 1) != 0 ||
                (i > 0 && bytes[0] != first)) {
                return 0;
            }
            first = bytes[0];
        }
        return first;
    }

    void strike(Row row) {
        switch (row.strike) {
        case Row::Kill:
            Fetch::stop(server, SIGKILL);
            break;
        case Row::Stop:
            ::stop(server);
            break;
        case Row::End:
            EXPECT_EQ(Fetch::stop(server, SIGTERM), 0);
            break;
        case Row::Drop:
            EXPECT_EQ(umfVaultDrop(model->handle, 0), OK);
            break;
        case Row::Change:
            write_model();
            break;
        }
    }
    Outcome strike_midway(Row row, const Context &context, size_t round) {
        Outcome outcome = {BAD, UMF_REASON_NONE};
        std::atomic<bool> is_over{false};
        std::thread thread([&] {
            outcome = fetch_all(context);
            is_over = true;
        });
        EXPECT_TRUE(until([&] { return is_over || copy->stat().writer != 0; }));
        std::this_thread::sleep_for(std::chrono::milliseconds(round % 8)); // another moment
        strike(row);
        thread.join();
        return outcome;
    }
    // A fetch in the middle may have been done before.
    static bool is_expected(Row row, bool is_midway, Outcome outcome) {
        bool is_gone = outcome.result == LOST && outcome.reason == UMF_REASON_GONE;
        bool is_stale = outcome.result == BAD && outcome.reason == UMF_REASON_STALE;
        switch (row.strike) {
        case Row::Kill:
            return is_gone || (is_midway && outcome.result == OK);
        case Row::Stop: // its connection is closed by force, which the next get may see
            return (outcome.result == LOST && outcome.reason == UMF_REASON_DEADLINE) ||
                   (is_midway && (is_gone || outcome.result == OK));
        case Row::End:
            return is_gone || (is_midway && (is_stale || outcome.result == OK));
        case Row::Drop: // the server learns it a moment later
            return outcome.result == OK || is_stale ||
                   (outcome.result == BAD && outcome.reason == UMF_REASON_ABSENT);
        default:
            return outcome.result == OK;
        }
    }
    // The vault has the whole new generation, or is as before.
    void check(Row row, bool is_midway, const umf_vault_stat_t &before, char value_before,
               Outcome outcome) const {
        EXPECT_TRUE(is_expected(row, is_midway, outcome))
            << outcome.result << " for the reason " << outcome.reason;
        umf_vault_stat_t now = copy->stat();
        EXPECT_EQ(now.writer, 0u);
        EXPECT_EQ(now.current > before.current, outcome.result == OK);
        EXPECT_TRUE(until([&] { return copy->stat().bytes == before.bytes; }));
        char here = value_here();
        EXPECT_NE(here, 0);
        if (outcome.result != OK) {
            EXPECT_EQ(here, value_before);
        }
    }
    void recover(Row row) {
        if (row.strike == Row::Kill || row.strike == Row::End) {
            start_server();
        } else if (row.strike == Row::Stop) {
            ASSERT_EQ(kill(server, SIGCONT), 0);
        } else if (row.strike == Row::Drop) {
            write_model();
        }
    }
};

TEST_P(FetchMatrix, Case) {
    const auto &[row, by_memory] = GetParam();
    const size_t rounds = 2 * (does_all() ? scaled(20) : 1);
    const unsigned flags = by_memory ? 0 : unsigned{UMF_REMOTE_NETWORK_ONLY};
    Context context("", flags), brief("", flags, 200);
    const Context &used = row.strike == Row::Stop ? brief : context;
    model = std::make_unique<Vault>();
    copy = std::make_unique<Vault>("copy");
    write_model();
    start_server();
    ASSERT_EQ(fetch_all(context).result, OK) << umfLastErrorText();
    for (size_t round = 0; round < rounds && !HasFailure(); round++) {
        bool is_midway = round % 2;
        umf_vault_stat_t before = copy->stat();
        char value_before = value_here();
        Outcome outcome = {OK, UMF_REASON_NONE};
        if (is_midway) {
            outcome = strike_midway(row, used, round / 2);
        } else {
            strike(row);
            outcome = fetch_all(used);
        }
        check(row, is_midway, before, value_before, outcome);
        recover(row);
        bool follows = row.strike == Row::Drop || row.strike == Row::Change;
        EXPECT_TRUE(until([&] {
            outcome = fetch_all(context);
            return (outcome.result == OK && value_here() == value) || !follows;
        }));
        EXPECT_EQ(outcome.result, OK) << umfLastErrorText();
        EXPECT_EQ(value_here(), value);
    }
    copy.reset();
    model.reset();
}

// Ends a fetch from a server that is stopped, when it has been silent for a while.
class Silence {
    using Clock = std::chrono::steady_clock;
    const pid_t server;
    const bool is_midway; // it is stopped when some of the content is here
    bool is_stopped;
    Clock::time_point last = Clock::now(), silent_since = last, ended = last;
    std::chrono::nanoseconds longest{0}; // between two reports

    int report(uint64_t done) {
        Clock::time_point now = Clock::now();
        longest = std::max<std::chrono::nanoseconds>(longest, now - last);
        last = now;
        if (is_midway && !is_stopped && done > 0) {
            ::stop(server);
            is_stopped = true;
            last = silent_since = Clock::now();
            return 0;
        }
        ended = now;
        return is_stopped && now - silent_since > std::chrono::milliseconds(400);
    }

  public:
    Silence(pid_t process, bool midway) : server(process), is_midway(midway), is_stopped(!midway) {
        if (!is_midway) {
            ::stop(server);
        }
    }
    umf_vault_fetch_params_t params() {
        umf_vault_fetch_params_t made = UMF_VAULT_FETCH_PARAMS_INIT;
        made.keep = 0;
        made.progress_arg = this;
        made.progress = [](uint64_t done, uint64_t, void *arg) {
            return static_cast<Silence *>(arg)->report(done);
        };
        return made;
    }
    // A machine with much to do may take longer than the 100 ms that are promised.
    void check() const {
        EXPECT_TRUE(is_stopped);
        EXPECT_LT(longest, std::chrono::seconds(1)) << "a report was late";
        EXPECT_LT(Clock::now() - ended, std::chrono::seconds(1)) << "the end was late";
        printf("longest wait for a report %.1f ms, for the end %.1f ms\n",
               static_cast<double>(longest.count()) / 1e6,
               static_cast<double>(std::chrono::nanoseconds(Clock::now() - ended).count()) / 1e6);
    }
};

class FetchSilence : public Fetch, public ::testing::WithParamInterface<std::tuple<bool, bool>> {};

TEST_P(FetchSilence, DelaysNoReportAndNoEnd) {
    const auto [is_midway, by_memory] = GetParam();
    constexpr size_t COUNT = 16;
    Vault model, copy("copy");
    {
        Draft draft(model);
        for (size_t i = 0; i < COUNT; i++) {
            memset(draft.put(key_of(i), UMF_FETCH_PIECE), 'a', UMF_FETCH_PIECE);
        }
        ASSERT_EQ(draft.commit(), OK);
    }
    pid_t server = serve("served");
    Context context("", by_memory ? 0 : unsigned{UMF_REMOTE_NETWORK_ONLY});
    Silence silence(server, is_midway);
    umf_vault_fetch_params_t params = silence.params();
    params.in_flight = 2 * UMF_FETCH_PIECE;
    EXPECT_EQ(fetch(copy, context, address("served"), nullptr, &params),
              UMF_RESULT_ERROR_USER_SPECIFIC);
    silence.check();
    EXPECT_EQ(copy.stat().writer, 0u);
    ASSERT_EQ(kill(server, SIGCONT), 0);
    params = UMF_VAULT_FETCH_PARAMS_INIT;
    umf_result_t result = fetch(copy, context, address("served"), nullptr, &params);
    EXPECT_EQ(result, OK) << umfLastErrorText();
}

INSTANTIATE_TEST_SUITE_P(OfAServer, FetchSilence,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto &one) {
                             return std::string(std::get<0>(one.param) ? "Midway" : "Before") +
                                    (std::get<1>(one.param) ? "_SharedMemory" : "_Ucx");
                         });

INSTANTIATE_TEST_SUITE_P(Of, FetchMatrix,
                         ::testing::Combine(::testing::ValuesIn(rows), ::testing::Bool()),
                         [](const auto &one) {
                             return std::string(std::get<0>(one.param).name) +
                                    (std::get<1>(one.param) ? "_SharedMemory" : "_Ucx");
                         });

} // namespace

int main(int argc, char **argv) {
    return run_role_or_tests(argc, argv, roles);
}
