/** @file
 * Vaults: named memory that outlives the processes that use it.
 *
 * A process writes a *generation*, which is memory with a table of names in it, and commits it in
 * one step. Others attach it in milliseconds, read-only, without a copy. The next generation is
 * written beside the one that is read. The memory stays when its writer ends, when its readers end,
 * and when the service that keeps it is killed.
 *
 *     umf_vault_handle_t vault;
 *     umfVaultOpen("model", NULL, &vault);
 *     umf_vault_draft_handle_t draft;
 *     umfVaultBegin(vault, NULL, &draft);
 *     umf_memory_pool_handle_t pool;
 *     umfVaultDraftPool(draft, "coalescing over linux_vmm", &pool);
 *     float *w = umfPoolMalloc(pool, size);              // fill it
 *     umfVaultPut(draft, "layers.0.weight", w, size, NULL, 0, 0);
 *     uint64_t generation;
 *     umfVaultCommit(draft, NULL, &generation);          // w is read-only from here on
 *
 *     umf_vault_handle_t vault;                          // in any other process of the user
 *     umfVaultOpen("model", NULL, &vault);
 *     umf_vault_view_handle_t view;
 *     umfVaultAttach(vault, NULL, &view);
 *     umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
 *     umfVaultFind(view, "layers.0.weight", &entry);     // entry.ptr, entry.size
 *
 * The service is `umfd`, two small processes of the same user. ::umfVaultOpen starts it when none
 * answers; nothing else of the library does. It holds descriptors only: it never maps, reads or
 * runs content. When one of the two processes is killed the other one starts it again, and a call
 * takes longer by that time; no connection, no generation and no byte is lost.
 *
 * The memory of a commit is sealed: the kernel refuses every write to it, by whatever process and
 * through whatever descriptor. So the memory of a draft must come from a provider whose files can
 * be sealed (linux_vmm), or be memory of a GPU.
 *
 * Memory of GPUs: a pool of the draft over cuda_vmm. A reader says so
 * (umf_vault_attach_params_t::devices) and gets it mapped for reading at addresses of its own;
 * ::UMF_VAULT_PRIVATE entries are copied when it attaches. Calls that unmap such memory wait for
 * the work that is queued on its device. No kernel seals it: whoever has a descriptor of it, which
 * is every reader, can map it for writing; the mappings here protect against mistakes. The service
 * loads no driver. Level Zero cannot give the memory of level_zero_vmm to other processes, so that
 * is not supported.
 *
 * A vault with the name `file:<folder>` keeps its generations in a folder instead, each in a file,
 * without a service: they outlive a boot, and can be copied to other machines. Everything else is
 * the same, with these differences. A file has no seals: it is read-only, but another process of
 * its user could change or cut it, and a reader of a file that was cut gets SIGBUS; so sums of all
 * entries are kept (::umfVaultVerify). A commit writes the content to the disk, and
 * ::umfVaultKeep copies. Generations beyond `keep` are removed by the next commit, with
 * readers or without; readers retain their mappings. Groups and ::umfVaultDropDraft are not
 * supported. The only events are commits; the number of an event is that of its generation.
 *
 * Memory that changes, such as a cache of keys and values, is *claimed*: ::umfVaultClaim. It has a
 * key, stays writable, and outlives its holder; the next holder continues with it.
 *
 * Handles of vaults and views may be used by any thread. A draft is used by one thread at a time;
 * its pools are like all pools. After a fork the handles are the parent's: calls in the child give
 * UMF_RESULT_ERROR_INVALID_ARGUMENT, and memory of views stays mapped there and readable.
 *
 * The functions are part of the library's extensions; without them, and on systems without memory
 * files, they give UMF_RESULT_ERROR_NOT_SUPPORTED.
 */
#ifndef UMF_VAULT_H
#define UMF_VAULT_H 1

#include <umf/base.h>
#include <umf/memory_pool.h>
#include <umf/remote.h>
#include <umf/suspend.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief A name, open in this process.
typedef struct umf_vault_t *umf_vault_handle_t;
/// @brief A generation that is being written.
typedef struct umf_vault_draft_t *umf_vault_draft_handle_t;
/// @brief A generation that is attached in this process.
typedef struct umf_vault_view_t *umf_vault_view_handle_t;

/// @brief How a vault is opened.
typedef struct umf_vault_params_t {
    /// sizeof(umf_vault_params_t) of the headers it was compiled with.
    size_t struct_size;
    /// Folder of the service, not used by a vault in a folder; NULL: `UMF_VAULT_DIR`, else
    /// `$XDG_RUNTIME_DIR/umf`, else `/run/umf` for root and `/tmp/umf-<uid>` for others.
    const char *folder;
    /// 1: start the service if none answers. It ends by itself after a minute without clients and
    /// content.
    int start;
    /// How long the service may take to answer, in ms.
    uint64_t timeout_ms;
    /// Bytes that the vault may have, all generations together; 0: no limit. It counts when the
    /// first draft makes the name. Of a folder: that of the handle counts for its own commits.
    uint64_t limit;
    /// Generations before the current one that stay without readers. It counts as `limit`.
    uint32_t keep;
} umf_vault_params_t;

/// @brief The default: the place of the user, started if need be, 10 seconds.
#define UMF_VAULT_PARAMS_INIT                                                                      \
    { sizeof(umf_vault_params_t), NULL, 1, 10000, 0, 0 }

/// @brief How a draft begins.
typedef struct umf_vault_draft_params_t {
    /// sizeof(umf_vault_draft_params_t) of the headers it was compiled with.
    size_t struct_size;
    /// How long to wait while another client writes, in ms.
    uint64_t timeout_ms;
    /// A generation whose entries ::umfVaultKeep may take over; 0: none.
    uint64_t from;
    /// 1: the current generation goes first, for memory that has no room for two. If the draft then
    /// fails, the vault has no current generation.
    int replace;
    /// Bytes that readers compare, such as model and revision; copied. NULL: none.
    const void *identity;
    /// How many; at most 4096.
    size_t identity_size;
    /// Text of a pool, at most 255 bytes, as for ::umfVaultDraftPool: memory of ::umfVaultCopy is
    /// from pools that it describes. "proxy over cuda_vmm:device=0" brings a generation of the host
    /// or of a folder into a GPU. NULL: memory of the host.
    const char *copy_pool;
} umf_vault_draft_params_t;

/// @brief The default: no wait, an empty draft beside the current generation.
#define UMF_VAULT_DRAFT_PARAMS_INIT                                                                \
    { sizeof(umf_vault_draft_params_t), 0, 0, 0, NULL, 0, NULL }

/// @brief Flags of an entry. Entries of different flags cannot be in one piece of memory: allocate
///        them from different pools of the draft.
typedef enum umf_vault_flag_t {
    /// Readers have a copy of their own, which they can write; pages that they do not write are
    /// shared.
    UMF_VAULT_PRIVATE = 1,
    /// Readers have memory of this size that reads as zero and that they can write; the content is
    /// not kept.
    UMF_VAULT_ZERO = 2,
} umf_vault_flag_t;

/// @brief How a draft is committed.
typedef struct umf_vault_commit_params_t {
    /// sizeof(umf_vault_commit_params_t) of the headers it was compiled with.
    size_t struct_size;
    /// Name of a group, 1 to 255 bytes: its generations, of several vaults, become current
    /// together when the last one is committed, or never. NULL: the draft alone.
    const char *group;
    /// How many vaults the group has; 1 to 64.
    uint32_t group_count;
    /// How long to wait for the others of the group, in ms. After that the group ends.
    uint64_t timeout_ms;
    /// 1: a sum of 64 bits is kept of each entry, for ::umfVaultVerify. All content is read for it,
    /// except for entries of ::umfVaultKeep that have a sum. Memory of devices whose entries have
    /// none is mapped for that time, after it was made again if it was evicted. Memory that was
    /// made again since its commit, by any process, is compared with the sum of its snapshot: the
    /// commit fails with ::UMF_REASON_BROKEN if it differs, and gives
    /// ::UMF_RESULT_ERROR_NOT_SUPPORTED with ::UMF_REASON_UNSUPPORTED if the snapshot has none.
    int digest;
} umf_vault_commit_params_t;

/// @brief The default: the draft alone, without sums.
#define UMF_VAULT_COMMIT_PARAMS_INIT                                                               \
    { sizeof(umf_vault_commit_params_t), NULL, 0, 0, 0 }

/// @brief How a generation is attached.
typedef struct umf_vault_attach_params_t {
    /// sizeof(umf_vault_attach_params_t) of the headers it was compiled with.
    size_t struct_size;
    /// Number of the generation; 0: the current one.
    uint64_t generation;
    /// How long to wait for it, in ms.
    uint64_t timeout_ms;
    /// The identity that it must have; NULL: any.
    const void *identity;
    /// Its size in bytes.
    size_t identity_size;
    /// The provider that maps memory of devices, as umf/text.h describes it: "cuda_vmm" is one of
    /// the device that the memory is of, "cuda_vmm:device=1" one of another device that reaches it.
    /// The first one of a device is made here, and kept until the vault is closed. NULL: a
    /// generation with such memory is refused, so no driver is started unasked. "none":
    /// no driver is started and such memory is not mapped; entries of it have names, sizes and
    /// notes, and a ptr that is NULL, and are neither verified nor copied.
    const char *devices;
} umf_vault_attach_params_t;

/// @brief The default: the current generation, which must be there.
#define UMF_VAULT_ATTACH_PARAMS_INIT                                                               \
    { sizeof(umf_vault_attach_params_t), 0, 0, NULL, 0, NULL }

/// @brief An entry of a generation.
typedef struct umf_vault_entry_t {
    /// sizeof(umf_vault_entry_t) of the headers it was compiled with.
    size_t struct_size;
    /// Its memory in this process, valid until the view is detached, but for the time in which it
    /// is suspended. NULL: memory of a device in a view that was attached with "none".
    void *ptr;
    /// Bytes of it.
    size_t size;
    /// The note that was put with it; valid until the view is detached or moved. NULL: none.
    const void *note;
    /// Bytes of the note.
    size_t note_size;
    /// Values of ::umf_vault_flag_t.
    unsigned flags;
    /// Its name, with a NUL; valid as `note`.
    const char *key;
    /// Number of the GPU in this process that `ptr` is for; -1: memory of the host.
    int device;
} umf_vault_entry_t;

/// @brief Only the size set.
#define UMF_VAULT_ENTRY_INIT                                                                       \
    { sizeof(umf_vault_entry_t), NULL, 0, NULL, 0, 0, NULL, -1 }

/// @brief Called by ::umfVaultFetch in its thread: about every 50 ms, and before the commit, when
///        all content is here. Returns 0 to go on.
///
/// `done` of `size` bytes of content are here; `size` is 0 until a server has answered. Both begin
/// again if the servers have another generation meanwhile. It must not close the vault or destroy
/// the context.
typedef int (*umf_vault_fetch_progress_t)(uint64_t done, uint64_t size, void *arg);

/// @brief How a generation is fetched from another machine.
typedef struct umf_vault_fetch_params_t {
    /// sizeof(umf_vault_fetch_params_t) of the headers it was compiled with.
    size_t struct_size;
    /// 1: content that the current generation has already does not travel. Pieces of memory without
    /// a change are shared with it, and if nothing differs no generation is made.
    int keep;
    /// 1: a sum of each entry is kept, as umf_vault_commit_params_t::digest.
    int digest;
    /// Bytes that the generation may have; a larger one is refused before anything of it travels.
    /// 0: no limit.
    uint64_t limit;
    /// Bytes that may be in transfer at once from each server, at least 4 MiB; 0: 64 MiB.
    size_t in_flight;
    /// How long to wait while another client writes, in ms.
    uint64_t timeout_ms;
    /// Gets the progress, and can end the fetch, also while a server does not answer. NULL: none.
    umf_vault_fetch_progress_t progress;
    /// Handed to `progress`.
    void *progress_arg;
} umf_vault_fetch_params_t;

/// @brief The default: only what differs travels; no limit, no sums, no wait.
#define UMF_VAULT_FETCH_PARAMS_INIT                                                                \
    { sizeof(umf_vault_fetch_params_t), 1, 0, 0, 0, 0, NULL, NULL }

/// @brief State of a vault.
typedef struct umf_vault_stat_t {
    /// sizeof(umf_vault_stat_t) of the headers it was compiled with.
    size_t struct_size;
    /// Number of the current generation; 0: none.
    uint64_t current;
    /// Generations that can be attached.
    uint64_t generations;
    /// Bytes of all of them and of the draft; memory that generations share counts once.
    uint64_t bytes;
    /// Clients that have a generation attached; the writer of one is among them. Of a folder: 0.
    uint64_t readers;
    /// Bytes that it may have; 0: no limit.
    uint64_t limit;
    /// How many times the service was started since the keeper began.
    uint64_t restarts;
    /// Number of the last event.
    uint64_t event;
    /// Process of the client that writes a draft; 0: none, or of a folder.
    uint32_t writer;
    /// How many devices have memory of it.
    uint32_t devices;
    /// Bytes of `bytes` that are memory of devices.
    uint64_t device_bytes;
    /// The first of them, by its UUID ("GPU-..."); "": none.
    char device[48];
    /// Bytes of `bytes` that are copies of memory of devices (::umfVaultSnapshot).
    uint64_t copy_bytes;
    /// Generations whose memory of devices was evicted.
    uint64_t evicted;
    /// Keys that have writable memory (::umfVaultClaim), with or without a holder; `bytes` has
    /// their memory, too. Of a folder: 0.
    uint32_t claims;
    /// A random number of the service, which changes when both of its processes have ended: then
    /// nothing of the former content is left, and generations and events count anew. Of a folder:
    /// a number of its file `lock`, which the first commit makes; 0: none yet. A folder that was
    /// removed and made again has another one.
    uint64_t service;
} umf_vault_stat_t;

/// @brief Only the size set.
#define UMF_VAULT_STAT_INIT                                                                        \
    { sizeof(umf_vault_stat_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "", 0, 0, 0, 0 }

/// @brief Types of events.
typedef enum umf_vault_event_type_t {
    /// A generation became current.
    UMF_VAULT_EVENT_COMMITTED = 1,
    /// A generation can no longer be attached.
    UMF_VAULT_EVENT_DROPPED = 2,
    /// A draft ended without a commit.
    UMF_VAULT_EVENT_ABORTED = 3,
    /// A client that had a generation attached has ended.
    UMF_VAULT_EVENT_READER_ENDED = 4,
    /// Memory of devices was evicted.
    UMF_VAULT_EVENT_EVICTED = 5,
    /// Memory of devices was made again.
    UMF_VAULT_EVENT_REFILLED = 6,
    /// A client no longer holds a claim: it gave it back, its process has ended, or another client
    /// has taken it. The generation of the event is the epoch that it had; 0: a client that had
    /// lost its claim to a fence before no longer has the memory mapped.
    UMF_VAULT_EVENT_UNCLAIMED = 7,
} umf_vault_event_type_t;

/// @brief An event of a vault.
typedef struct umf_vault_event_t {
    /// sizeof(umf_vault_event_t) of the headers it was compiled with.
    size_t struct_size;
    /// Its number. Numbers grow; those of other vaults are between.
    uint64_t number;
    /// Its type.
    umf_vault_event_type_t type;
    /// The generation, or the number that the draft would have had.
    uint64_t generation;
} umf_vault_event_t;

/// @brief Only the size set.
#define UMF_VAULT_EVENT_INIT                                                                       \
    { sizeof(umf_vault_event_t), 0, UMF_VAULT_EVENT_COMMITTED, 0 }

/// @brief Opens a vault by its name. Nothing is made before the first draft.
///
/// @param name 1 to 255 bytes. `file:<folder>`: a vault in a folder, at most 511 bytes; a relative
///        path is that of the current folder. The first draft makes the folder, with mode 0700, if
///        the one above it is there
/// @param params NULL: ::UMF_VAULT_PARAMS_INIT
/// @param hVault [out] to be closed by ::umfVaultClose; written only on success
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument or the name is not valid, or the
///         vault belongs to another user;
///         ::UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE if no service answers and none could be
///         started; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if the service has no room for another client, or
///         does not answer in time;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if the service has another version. Of a folder also
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if it cannot be read or written, and
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if its disk is full. The log has the cause.
umf_result_t umfVaultOpen(const char *name, const umf_vault_params_t *params,
                          umf_vault_handle_t *hVault);

/// @brief Closes a vault: its drafts are aborted, its views detached. No other thread may use them.
///
/// @param hVault the vault
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT; as ::umfVaultDetach if a
///         device has memory of it: then the vault stays
umf_result_t umfVaultClose(umf_vault_handle_t hVault);

/// @brief Begins a draft. A vault has one at a time, of all processes.
///
/// @param hVault the vault
/// @param params NULL: ::UMF_VAULT_DRAFT_PARAMS_INIT
/// @param hDraft [out] to be ended by ::umfVaultCommit or ::umfVaultAbort; written only on success
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is not valid, or there is no
///         generation `from`;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if another client has one until the time is over, or
///         a table of the service is full; otherwise as ::umfVaultOpen
umf_result_t umfVaultBegin(umf_vault_handle_t hVault, const umf_vault_draft_params_t *params,
                           umf_vault_draft_handle_t *hDraft);

/// @brief Creates a pool for the memory of a draft.
///
/// @param hDraft the draft, which owns the pool: it must not be destroyed by the caller. It is
///        destroyed when the draft ends
/// @param text a pool as umf/text.h describes it, over linux_vmm or cuda_vmm. Each pool may have
///        another device; an arena cannot be kept
/// @param hPool [out] the pool; written only on success
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_NOT_SUPPORTED if the provider's memory cannot
///         be kept in a vault, as any but linux_vmm's in a folder; otherwise as
///         ::umfPoolCreateFromText
umf_result_t umfVaultDraftPool(umf_vault_draft_handle_t hDraft, const char *text,
                               umf_memory_pool_handle_t *hPool);

/// @brief Gives memory of a draft a name. Its content counts as it is at the commit.
///
/// @param hDraft the draft
/// @param key 1 to 255 bytes. A key that was put before gets the new memory
/// @param ptr memory of a pool of the draft, inside of one allocation
/// @param size of the entry in bytes, not 0
/// @param note bytes for readers, such as a shape; copied. NULL: none
/// @param note_size how many; at most 65535
/// @param flags values of ::umf_vault_flag_t
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is not valid,
///         or if memory of other flags is in the same piece; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES beyond a million entries
umf_result_t umfVaultPut(umf_vault_draft_handle_t hDraft, const char *key, const void *ptr,
                         size_t size, const void *note, size_t note_size, unsigned flags);

/// @brief Takes over entries of the generation `from`. Memory is shared, not copied: a piece stays
///        as long as one generation has an entry in it. In a folder it is copied.
///
/// @param hDraft the draft
/// @param prefix of the keys; "" takes all. Keys that were put before are left as they are
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if the draft has no `from`, or
///         `prefix` is NULL; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
umf_result_t umfVaultKeep(umf_vault_draft_handle_t hDraft, const char *prefix);

/// @brief Copies entries of a view, of this or any other vault, into new memory of a draft, with
///        notes and flags. This stores a generation in a folder while it is served, and brings it
///        back from there. Memory of a GPU becomes memory of the host, or what
///        umf_vault_draft_params_t::copy_pool says.
///
/// A draft of a folder takes no memory for it, but for private entries: it reads the view's until
/// it ends. Entries that share memory do so in the copy. Content is compared with its sum, if it
/// has one. Entries with ::UMF_VAULT_PRIVATE are copied as this process sees them.
///
/// @param hDraft the draft. Without an identity it gets that of the view. It needs up to three of
///        its 64 pools for this
/// @param hView the view, which must not be detached meanwhile
/// @param prefix of the keys; NULL or "": all. A key that was put before gets the new memory
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if a handle is not valid, and
///         with ::UMF_REASON_BROKEN if content differs from its sum;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED for memory of a device in a view that was attached with
///         "none"; ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES
///         beyond a million entries, 16384 pieces or 64 pools. After a failure no entry was added
umf_result_t umfVaultCopy(umf_vault_draft_handle_t hDraft, umf_vault_view_handle_t hView,
                          const char *prefix);

/// @brief Fetches the generation that `umf-remote serve` serves on another machine, and commits it.
///
/// The content comes in pieces, each with a digest of the server's table, which is compared. If a
/// connection is lost or a server ends, another one continues with the pieces that are missing.
/// Digests find damage; they do not protect against a server that wants to deceive: give addresses
/// of servers that you trust, with a key (umf_remote_params_t::key_file) beyond this machine.
///
/// The vault has the whole generation afterwards, or is as it was: content that was fetched before
/// a failure is dropped, also if this process is killed. Entries, notes, flags and identity are
/// those of the server; memory is of the host, and has the form of the server's unless pieces were
/// kept. Nothing of it stays mapped in this process: attach it. If the servers commit another
/// generation meanwhile, that one is fetched, after three attempts no more.
///
/// @param hVault the vault here; the number of its generation is its own
/// @param remote a context (umf/remote.h), which says on which devices, with which key, and how
///        long a server may be silent
/// @param from addresses of 1 to 16 servers of the same generation, as `umf-remote serve` prints
///        them ("umfr:..."), with blanks or commas between. All are used at once; servers that do
///        not answer, or have another generation than the first one, are left out
/// @param params NULL: ::UMF_VAULT_FETCH_PARAMS_INIT
/// @param generation [out] its number; that of the current one if nothing differs. Written only on
///        success. May be NULL
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is not valid, with
///         ::UMF_REASON_ABSENT if the server has no generation, ::UMF_REASON_STALE if no server has
///         the generation any more, ::UMF_REASON_BROKEN if table or content of all servers is
///         damaged, ::UMF_REASON_DENIED if the key differs;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES with ::UMF_REASON_GONE or ::UMF_REASON_DEADLINE if
///         no server answers, with ::UMF_REASON_LIMIT if it is larger than a limit;
///         ::UMF_RESULT_ERROR_USER_SPECIFIC if `progress` ended it;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY; otherwise as ::umfVaultBegin and ::umfVaultCommit
umf_result_t umfVaultFetch(umf_vault_handle_t hVault, umf_remote_handle_t remote, const char *from,
                           const umf_vault_fetch_params_t *params, uint64_t *generation);

/// @brief Commits a draft: it becomes the current generation, in one step.
///
/// The memory of all entries becomes read-only here and stays at its addresses until the vault is
/// closed; it belongs to no pool any more. The pools of the draft are destroyed, and memory without
/// entry is released. No other thread may use the draft or its memory meanwhile.
///
/// After a failure the draft is as it was, to be committed again or aborted; memory that was sealed
/// before the failure is read-only. If the service has lost the draft it can only be aborted.
///
/// @param hDraft the draft; not valid after a success
/// @param params NULL: ::UMF_VAULT_COMMIT_PARAMS_INIT
/// @param generation [out] its number; written only on success. May be NULL
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is not valid, or the draft was ended
///         by ::umfVaultDrop or its group;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if another process has memory of it mapped writable,
///         if a limit is reached, or the others of the group did not come in time;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY; otherwise as ::umfVaultOpen, and as
///         ::umfVaultAttach if umf_vault_commit_params_t::digest reads memory of devices that is
///         kept
umf_result_t umfVaultCommit(umf_vault_draft_handle_t hDraft,
                            const umf_vault_commit_params_t *params, uint64_t *generation);

/// @brief Ends a draft without a commit. Its pools and their memory are destroyed.
///
/// @param hDraft the draft
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT
umf_result_t umfVaultAbort(umf_vault_draft_handle_t hDraft);

/// @brief Maps a generation into this process, read-only.
///
/// Memory of devices that was evicted is made again first, on its device, from its copies
/// (::umfVaultEvict); their sums are compared. While another client does that, the call waits for
/// it, up to `timeout_ms` or the time of the vault's parameters, whichever is longer. If that
/// client fails or ends, this one does it.
///
/// @param hVault the vault
/// @param params NULL: ::UMF_VAULT_ATTACH_PARAMS_INIT
/// @param hView [out] to be detached by ::umfVaultDetach; written only on success
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is not valid, if there is no such
///         generation, if it has another identity, or if it is broken, as when memory of a device
///         is of another size or device than its table says; with ::UMF_REASON_ABSENT if this
///         process does not see the device;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if it has memory of devices and `devices` is NULL;
///         an error of the provider of `devices`; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if it did not
///         come in time, with ::UMF_REASON_BUSY if it was evicted while it was mapped, with
///         ::UMF_REASON_LIMIT if the vault has no room for memory that was evicted;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY; otherwise as ::umfVaultOpen. After a failure
///         nothing is mapped.
umf_result_t umfVaultAttach(umf_vault_handle_t hVault, const umf_vault_attach_params_t *params,
                            umf_vault_view_handle_t *hView);

/// @brief Finds an entry. It takes no lock and makes no system call.
///
/// @param hView the view
/// @param key its name
/// @param entry [in,out] struct_size is set; the rest is written only on success
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if there is none, or an
///         argument is not valid
umf_result_t umfVaultFind(umf_vault_view_handle_t hView, const char *key, umf_vault_entry_t *entry);

/// @brief Called for an entry. Returns 0 to go on.
typedef int (*umf_vault_each_t)(const umf_vault_entry_t *entry, void *arg);

/// @brief Visits entries, sorted by name.
///
/// @param hView the view, which must not be detached meanwhile
/// @param prefix of their names; NULL or "": all
/// @param visitor called for each
/// @param arg handed to `visitor`
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_USER_SPECIFIC if the visitor stopped;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT
umf_result_t umfVaultEach(umf_vault_view_handle_t hView, const char *prefix,
                          umf_vault_each_t visitor, void *arg);

/// @brief Reads content and compares it with the sums of the commit.
///
/// The kernel refuses all writes to committed memory, so a difference is a fault of the memory or
/// of the machine. A sum finds faults; it is no protection against those who want to deceive.
///
/// @param hView the view, which must not be detached meanwhile. Entries with ::UMF_VAULT_PRIVATE
///        that this process has changed differ
/// @param key name of an entry; NULL: all that have a sum
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT with ::UMF_REASON_BROKEN if content differs: the log
///         has the name of the first such entry; without that reason if there is no such entry or
///         an argument is not valid;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED if there is no sum: umf_vault_commit_params_t::digest
///         was 0, or the entry has ::UMF_VAULT_ZERO; or if the view was attached with "none" and
///         the entry is memory of a device
umf_result_t umfVaultVerify(umf_vault_view_handle_t hView, const char *key);

/// @brief Number of the generation of a view.
///
/// @param hView the view
/// @param generation [out] its number
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT
umf_result_t umfVaultViewGeneration(umf_vault_view_handle_t hView, uint64_t *generation);

/// @brief Identity of the generation of a view.
///
/// @param hView the view
/// @param identity [out] its bytes, valid until the view is detached or moved; NULL if it has none
/// @param size [out] how many; 0: none
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT
umf_result_t umfVaultViewIdentity(umf_vault_view_handle_t hView, const void **identity,
                                  size_t *size);

/// @brief Unmaps a view. Its entries are not valid any more.
///
/// @param hView the view, which no other thread may use
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT; of memory of a device also an
///         error of the driver if the work that is queued could not be waited for, as while a
///         stream is captured: then the view stays
umf_result_t umfVaultDetach(umf_vault_view_handle_t hView);

/// @brief Takes the shared memory of a view out of this process: its addresses stay, its content
///        stays in the vault. A suspended view can be resumed, moved or detached.
///
/// Memory of a device is not released by it, as long as the vault has the generation. Entries with
/// ::UMF_VAULT_PRIVATE or ::UMF_VAULT_ZERO are memory of this process and stay as they are.
///
/// The service is not called. A generation that the vault loses while its view is suspended cannot
/// be resumed: by ::umfVaultDrop, in a folder by a commit that does not keep it, or because the
/// service has ended.
///
/// @param hView the view, which no other thread may use meanwhile, but for ::umfVaultFind
/// @param params queues and events of the devices whose work so far is waited for; NULL or none:
///        all work that is queued on them
/// @return ::UMF_RESULT_SUCCESS, also if it is suspended;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is not valid; an error of the driver
///         if the work could not be waited for, then nothing changes
umf_result_t umfVaultSuspend(umf_vault_view_handle_t hView, const umf_suspend_params_t *params);

/// @brief Brings the memory of a suspended view back, at its addresses.
///
/// @param hView the view, which no other thread may use meanwhile
/// @return ::UMF_RESULT_SUCCESS, also if it is not suspended; otherwise as ::umfVaultAttach, with
///         ::UMF_REASON_STALE if the vault has lost the generation: then it stays suspended
umf_result_t umfVaultResume(umf_vault_view_handle_t hView);

/// @brief Makes a view one of another generation of its vault: new content at the same addresses,
///        so that pointers and graphs that use them stay valid.
///
/// Both generations must have the same layout: entries of the same keys, sizes and flags at the
/// same places, as those that one program wrote in the same order. Private entries get the content
/// of the other generation, those with ::UMF_VAULT_ZERO stay as they are. Notes and keys that
/// ::umfVaultFind gave before are not valid any more.
///
/// @param hView the view, which no other thread may use meanwhile; it may be suspended
/// @param generation number of the other generation; 0: the current one
/// @param params as of ::umfVaultSuspend
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT with ::UMF_REASON_IDENTITY if
///         the layout differs; otherwise as ::umfVaultAttach. A refusal changes nothing; when
///         mapping fails in the middle the view is suspended, of its former generation, and private
///         entries may have the content of either
umf_result_t umfVaultMove(umf_vault_view_handle_t hView, uint64_t generation,
                          const umf_suspend_params_t *params);

/// @brief How a snapshot is taken.
typedef struct umf_vault_snapshot_params_t {
    /// sizeof(umf_vault_snapshot_params_t) of the headers it was compiled with.
    size_t struct_size;
    /// How long to wait while another client copies or refills the generation, in ms.
    uint64_t timeout_ms;
    /// 1: a sum of 64 bits of each piece is kept and compared at a refill, which then reads the
    /// copy once more, on the CPU, while the device gets it. A snapshot in a folder has sums
    /// always.
    int digest;
    /// The folder that gets a file with the generation, as a vault `file:<folder>` has it. NULL:
    /// the copies are memory of the host.
    const char *folder;
} umf_vault_snapshot_params_t;

/// @brief The default: in memory, no wait, with sums.
#define UMF_VAULT_SNAPSHOT_PARAMS_INIT                                                             \
    { sizeof(umf_vault_snapshot_params_t), 0, 1, NULL }

/// @brief Copies the memory of devices of a generation into memory of the host, which the service
///        keeps beside it, sealed, or all of the generation into a file of a folder. The generation
///        is served meanwhile.
///
/// Copies in memory count for the limit of the vault, and end with the generation. Pieces that have
/// a copy are not copied again. With copies ::umfVaultEvict can release the memory of devices.
///
/// With `folder` each call adds a generation to the vault `file:<folder>`, which is made if it is
/// not there; no other one of it is dropped. The file replaces the copies in memory. The service
/// keeps a descriptor of it, so it is read whatever happens to its name or folder; its content is
/// compared with sums each time. One that was changed or cut does not come back: an attach that
/// needs it gets ::UMF_REASON_BROKEN. The file stays when the generation is dropped, and beyond a
/// boot. The host needs memory for the largest piece while it is written.
///
/// @param hVault the vault, of the service
/// @param generation its number; 0: the current one
/// @param params NULL: ::UMF_VAULT_SNAPSHOT_PARAMS_INIT
/// @return ::UMF_RESULT_SUCCESS, also if it has no memory of devices;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is not valid, if there is no such
///         generation, or, with ::UMF_REASON_BROKEN, if content differs from its sum, or with
///         ::UMF_REASON_DENIED if the folder cannot be written;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if the limit of the vault is reached or the disk is
///         full, or with ::UMF_REASON_BUSY if another client fills the generation, or writes a
///         draft of the folder, until the time is over;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED of a vault in a folder, if the service is older, or if
///         the files of `folder` do not belong to this user; an error of the driver; otherwise as
///         ::umfVaultOpen. After a failure there is no copy or file that was not there before;
///         pieces whose copy in memory was replaced have that of the file, which has no name any
///         more.
umf_result_t umfVaultSnapshot(umf_vault_handle_t hVault, uint64_t generation,
                              const umf_vault_snapshot_params_t *params);

/// @brief Releases the memory of devices of a generation that has copies (::umfVaultSnapshot).
///
/// The service closes it. Processes that have it attached retain it: the device has the memory free
/// when the last of them has detached or suspended its view, and the process that wrote it has
/// closed its vault. The next ::umfVaultAttach with `devices`, and ::umfVaultResume and
/// ::umfVaultMove of views of devices, make the memory again from the copies, also if another
/// process has evicted it. One process makes it, the others wait. Pieces stay that are shared with
/// a draft, or with a generation that is not evicted.
///
/// @param hVault the vault
/// @param generation its number; 0: all that have copies
/// @return ::UMF_RESULT_SUCCESS, also if it was evicted before;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if there is no such generation, or, with
///         ::UMF_REASON_UNSUPPORTED, none with copies of all its memory of devices: then nothing
///         is released;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES with ::UMF_REASON_BUSY while a client makes copies
///         or memory; ::UMF_RESULT_ERROR_NOT_SUPPORTED of a folder, or if the service is older;
///         otherwise as ::umfVaultOpen
umf_result_t umfVaultEvict(umf_vault_handle_t hVault, uint64_t generation);

/// @brief How a claim treats other clients: the holders, unless all share it, and clients that were
///        fenced and may still have its memory mapped.
typedef enum umf_vault_fence_t {
    /// They are waited for. A client leaves a claim by ::umfVaultUnclaim or ::umfVaultClose, or
    /// when its process has ended; a process that is stopped leaves nothing. So none of its threads
    /// writes to the memory any more when the next client has it.
    UMF_VAULT_FENCE_WAIT = 0,
    /// They lose the claim at once: ::umfVaultClaimNote refuses them from then on, and
    /// umf_vault_claim_t::now differs from their epoch. The kernel cannot take a mapping away from
    /// another process: their threads can go on writing to the memory, if they do not look at
    /// `now`, until they unmap it or end.
    UMF_VAULT_FENCE_EPOCH = 1,
    /// Their processes are killed (SIGKILL) and waited for; none is if one of them cannot be
    /// killed. The process that claims is never killed: its other handles are waited for.
    UMF_VAULT_FENCE_KILL = 2,
} umf_vault_fence_t;

/// @brief How memory is claimed.
typedef struct umf_vault_claim_params_t {
    /// sizeof(umf_vault_claim_params_t) of the headers it was compiled with.
    size_t struct_size;
    /// Bytes, rounded up to pages, of a device to its granularity. 0: the memory must be there, of
    /// any size.
    size_t size;
    /// 1: held together with all others that say so.
    int shared;
    /// How other clients are treated.
    umf_vault_fence_t fence;
    /// How long to wait for them, in ms. With ::UMF_VAULT_FENCE_KILL at least
    /// umf_vault_params_t::timeout_ms.
    uint64_t timeout_ms;
    /// NULL: memory of the host. Otherwise memory of a device, and the provider that makes and maps
    /// it, as umf_vault_attach_params_t::devices: "cuda_vmm:device=1" makes it there, "cuda_vmm"
    /// maps memory on the device that it is of. Not read for a key that this handle holds.
    const char *devices;
} umf_vault_claim_params_t;

/// @brief The default: memory of the host that is there, for one holder, without a wait.
#define UMF_VAULT_CLAIM_PARAMS_INIT                                                                \
    { sizeof(umf_vault_claim_params_t), 0, 0, UMF_VAULT_FENCE_WAIT, 0, NULL }

/// @brief Memory that is claimed.
typedef struct umf_vault_claim_t {
    /// sizeof(umf_vault_claim_t) of the headers it was compiled with.
    size_t struct_size;
    /// The memory, for reading and writing, until ::umfVaultUnclaim, ::umfVaultForget or
    /// ::umfVaultClose. A child of fork does not have it.
    void *ptr;
    /// Bytes of it.
    size_t size;
    /// Number of this claim of the key: 1 for the one that made the memory, and higher each time
    /// that another client gets it; those that share it have the same. There may be gaps.
    uint64_t epoch;
    /// The epoch of the last claim, in the memory: another value than `epoch` says that this
    /// client was fenced. Valid as `ptr`. Holders can write to this word as to the rest: it guards
    /// against mistakes. In a child of fork it is 0.
    const volatile uint64_t *now;
    /// 1: the memory is new, and zero.
    int is_new;
    /// The last note; valid until the next call about this key. NULL: none.
    const void *note;
    /// Bytes of the note.
    size_t note_size;
    /// Number of the GPU in this process that `ptr` is for; -1: memory of the host. `now` is memory
    /// of the host always.
    int device;
} umf_vault_claim_t;

/// @brief Only the size set.
#define UMF_VAULT_CLAIM_INIT                                                                       \
    { sizeof(umf_vault_claim_t), NULL, 0, 0, NULL, 0, NULL, 0, -1 }

/// @brief Claims memory that has a key: maps it for writing, as its only holder or together with
///        others. The first claim of a key makes it.
///
/// The memory and its content stay when the holder ends. It has no generations
/// and is never sealed. It stays until ::umfVaultForget, or ::umfVaultDrop of the whole vault.
/// Memory of the host is taken from the system when it is first written.
///
/// Memory of a device: work that is queued on it writes, too. A holder that gives the claim back
/// waits for the work of the device first; the work of a process that was killed has ended when its
/// process has, which is what fences wait for. No copy of it is made, and it is not evicted.
///
/// A key that this handle holds already is claimed again without effect. One that it has lost to
/// another client is claimed anew, at the same addresses.
///
/// @param hVault the vault; of the service
/// @param key 1 to 255 bytes
/// @param params NULL: ::UMF_VAULT_CLAIM_PARAMS_INIT
/// @param claim [in,out] struct_size is set; the rest is written only on success
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is not valid; with
///         ::UMF_REASON_ABSENT if the key has no memory and `size` is 0, with ::UMF_REASON_IDENTITY
///         if it has another size or is not of the host or of a device, as asked for, with
///         ::UMF_REASON_BROKEN if it is not what the service says, with ::UMF_REASON_STALE if the
///         service has lost what this handle holds, which must be given back first;
///         ::UMF_RESULT_ERROR_OUT_OF_RESOURCES with ::UMF_REASON_BUSY if clients are in the way
///         when the time is over, or if a limit is reached;
///         ::UMF_RESULT_ERROR_NOT_SUPPORTED of a folder, if a process cannot be killed, or if
///         `devices` has no memory that processes share for writing; an error of the driver;
///         ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY; otherwise as ::umfVaultOpen. After a failure
///         nothing is claimed or mapped that was not before
umf_result_t umfVaultClaim(umf_vault_handle_t hVault, const char *key,
                           const umf_vault_claim_params_t *params, umf_vault_claim_t *claim);

/// @brief Stores a note beside a claim, such as how much of the memory is valid. This is the commit
///        of a holder: the service refuses it from a client that was fenced, at whatever moment it
///        comes.
///
/// The next holder gets the last note (umf_vault_claim_t::note), also if the service was killed
/// meanwhile: the former one or the new one, whole.
///
/// @param hVault the vault
/// @param key of a claim that this handle holds
/// @param epoch umf_vault_claim_t::epoch
/// @param note its bytes; copied. NULL: none
/// @param size how many; at most 256
/// @return ::UMF_RESULT_SUCCESS;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an argument is not valid; with
///         ::UMF_REASON_STALE if the claim has another holder or epoch, or the service has lost it:
///         the note is as it was; otherwise as ::umfVaultOpen
umf_result_t umfVaultClaimNote(umf_vault_handle_t hVault, const char *key, uint64_t epoch,
                               const void *note, size_t size);

/// @brief Gives a claim back: its memory is unmapped here and stays in the vault.
///
/// @param hVault the vault
/// @param key of the claim
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if this handle does not have
///         it; an error of the driver if the work of its device cannot be waited for, as while a
///         stream is captured: then it is held as before; otherwise as ::umfVaultOpen: then it is
///         unmapped, and the claim ends with the process
umf_result_t umfVaultUnclaim(umf_vault_handle_t hVault, const char *key);

/// @brief Ends the memory of a key, which no other handle may hold or have mapped.
///
/// @param hVault the vault
/// @param key of the memory
/// @return ::UMF_RESULT_SUCCESS, also if there is none; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if an
///         argument is not valid; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES with ::UMF_REASON_BUSY if
///         another client has it; ::UMF_RESULT_ERROR_NOT_SUPPORTED of a folder; otherwise as
///         ::umfVaultOpen
umf_result_t umfVaultForget(umf_vault_handle_t hVault, const char *key);

/// @brief State of a claim.
typedef struct umf_vault_claim_stat_t {
    /// sizeof(umf_vault_claim_stat_t) of the headers it was compiled with.
    size_t struct_size;
    /// Its key, valid in the visitor.
    const char *key;
    /// Bytes of its memory.
    size_t size;
    /// Bytes of its note.
    size_t note_size;
    /// The epoch of the last claim.
    uint64_t epoch;
    /// How many clients hold it.
    uint32_t holders;
    /// Process of one of them; 0: none, or of another namespace.
    uint32_t process;
    /// 1: they share it.
    int shared;
    /// The device of its memory by its UUID ("GPU-..."); "": memory of the host.
    char device[48];
} umf_vault_claim_stat_t;

/// @brief Called for a claim. Returns 0 to go on.
typedef int (*umf_vault_claim_visitor_t)(const umf_vault_claim_stat_t *stat, void *arg);

/// @brief Visits the claims of a vault, held or not.
///
/// @param hVault the vault; a folder has none
/// @param visitor called for each
/// @param arg handed to `visitor`
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_USER_SPECIFIC if the visitor stopped;
///         ::UMF_RESULT_ERROR_INVALID_ARGUMENT; otherwise as ::umfVaultOpen
umf_result_t umfVaultEachClaim(umf_vault_handle_t hVault, umf_vault_claim_visitor_t visitor,
                               void *arg);

/// @brief State of a vault.
///
/// @param hVault the vault
/// @param stat [in,out] struct_size is set; the rest is written only on success
/// @return ::UMF_RESULT_SUCCESS; otherwise as ::umfVaultOpen
umf_result_t umfVaultStat(umf_vault_handle_t hVault, umf_vault_stat_t *stat);

/// @brief Waits for the next event of a vault.
///
/// When the service was started again in the middle of a commit, its event may come twice.
///
/// @param hVault the vault
/// @param after number of the last event that the caller has read; 0: the oldest that is kept.
///        ::umfVaultStat has the last one. The service keeps the last 1024 of all vaults. A number
///        that it has not reached is of a service that has ended, and counts as 0
/// @param timeout_ms how long to wait, in ms
/// @param event [in,out] struct_size is set; the rest is written only on success
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES with ::UMF_REASON_TIMEOUT if
///         there was none in time;
///         otherwise as ::umfVaultOpen
umf_result_t umfVaultWait(umf_vault_handle_t hVault, uint64_t after, uint64_t timeout_ms,
                          umf_vault_event_t *event);

/// @brief Drops a generation, or all of them, the draft and the claims. Mapped memory stays mapped.
///        In a folder the draft goes on and can be committed.
///
/// @param hVault the vault
/// @param generation its number; 0: the whole vault
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_INVALID_ARGUMENT if there is none; otherwise as
///         ::umfVaultOpen
umf_result_t umfVaultDrop(umf_vault_handle_t hVault, uint64_t generation);

/// @brief Ends the draft of another client, which may be stopped.
///
/// @param hVault the vault
/// @return ::UMF_RESULT_SUCCESS, also if there is none; ::UMF_RESULT_ERROR_NOT_SUPPORTED of a
///         folder, where the draft ends with its process; otherwise as ::umfVaultDrop
umf_result_t umfVaultDropDraft(umf_vault_handle_t hVault);

/// @brief Called for a vault. Returns 0 to go on.
typedef int (*umf_vault_visitor_t)(const char *name, const umf_vault_stat_t *stat, void *arg);

/// @brief Visits the vaults of a service. It starts none.
///
/// @param params folder and time; NULL: ::UMF_VAULT_PARAMS_INIT
/// @param visitor called for each
/// @param arg handed to `visitor`
/// @return as ::umfVaultOpen; ::UMF_RESULT_ERROR_USER_SPECIFIC if the visitor stopped
umf_result_t umfVaultList(const umf_vault_params_t *params, umf_vault_visitor_t visitor, void *arg);

/// @brief Ends the service of a place. It starts none.
///
/// @param params folder and time; NULL: ::UMF_VAULT_PARAMS_INIT
/// @param drop 0: only if it has no other clients and no content
/// @return ::UMF_RESULT_SUCCESS; ::UMF_RESULT_ERROR_OUT_OF_RESOURCES if it has; otherwise as
///         ::umfVaultOpen
umf_result_t umfVaultStop(const umf_vault_params_t *params, int drop);

#ifdef __cplusplus
}
#endif

#endif /* UMF_VAULT_H */
