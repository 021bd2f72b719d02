/** @file
 * libumem: one interface to memory of the host, of files and of GPUs.
 *
 * A *context* is the interface to one kind of memory, such as a ::umemHost or a ::umemCuda. It is a
 * struct of the program, made by its constructor and ended by ::umem_dtor. Addresses are numbers
 * (uintptr_t), which only their context can interpret: pointers of the host, pointers of a device,
 * offsets in a file.
 *
 * @code{.c}
 * #include <umem/umem.h>
 *
 * int to_gpu(float *values, size_t count) {
 *     umemHost host;
 *     umemCuda cuda;
 *     umemHost_ctor(&host);
 *     umemCuda_ctor(&cuda, 0);
 *     uintptr_t device_adr = umem_alloc(&cuda, count * sizeof(*values));
 *     umem_copy_to(&host, (uintptr_t)values, &cuda, device_adr, count * sizeof(*values));
 *     int is_good = umem_is_ok(&cuda);
 *     umem_free(&cuda, device_adr);
 *     umem_dtor(&cuda);
 *     umem_dtor(&host);
 *     return is_good;
 * }
 * @endcode
 *
 * Rules for all functions:
 * - Functions that take a `void *` for a context take a pointer to any of the types below, or to a
 *   program's own that begins with a ::umemVirtual.
 * - Errors are reported in the status of a context. It stays until ::umem_clear_status, and further
 *   errors add their text. An old error does not change the effect of a later call.
 * - Contexts own no memory: ::umem_dtor frees nothing, and any context of the same kind and device
 *   may free memory that another has allocated.
 * - A context is never copied or moved. One thread at a time uses it.
 * - errno stays as it was.
 * - Allocations of size 0 give address 0 and no error. Address 0 may be freed.
 * - Every block has at least 8 usable bytes more than the requested size.
 */
#ifndef UMEM_H
#define UMEM_H 1

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "umem_config.h"
#include "umem_utils.h"

UMEM_START_EXTERN_C

/// @brief Kinds of contexts.
typedef enum umemDeviceType {
    /// A program's own.
    umemVirtualDevice = 0,
    /// Memory of the host.
    umemHostDevice,
    /// A file, read and written.
    umemFileDevice,
    /// Memory of a GPU.
    umemCudaDevice,
    /// Pinned memory of the host.
    umemCudaHostDevice,
    /// Memory that moves between host and GPU.
    umemCudaManagedDevice,
    /// A file, mapped.
    umemMMapDevice,
    /// Memory of a GPU by way of rmm.h.
    umemRMMDevice
} umemDeviceType;

/// @brief Kinds of errors.
typedef enum umemStatusType {
    /// No error.
    umemOK = 0,
    /// There is not enough memory.
    umemMemoryError,
    /// A driver or the library failed.
    umemRuntimeError,
    /// A file failed.
    umemIOError,
    /// An argument cannot be.
    umemValueError,
    /// An argument is of the wrong kind.
    umemTypeError,
    /// A range is too long.
    umemIndexError,
    /// The context has no such operation.
    umemNotImplementedError,
    /// The device cannot do it.
    umemNotSupportedError,
    /// Something that must hold does not.
    umemAssertError
} umemStatusType;

/// @brief Status of a context.
typedef struct umemStatus {
    /// Kind of the last error.
    umemStatusType type;
    /// Text of the error; NULL: none. The library allocates and frees it.
    char *message;
} umemStatus;

struct umemVtbl;

/// @brief Common first member of all contexts.
typedef struct umemVirtual {
    /// The operations.
    struct umemVtbl const *vptr;
    /// The kind.
    umemDeviceType type;
    /// The status.
    umemStatus status;
    union {
        /// The context of host memory that this one works with; may be NULL in a program's own.
        void *host_ctx;
        /// Another name of `host_ctx`.
        void *host;
    };
} umemVirtual;

/// @brief Operations of a context: the functions without `_` of the same name call them.
struct umemVtbl {
    /// See ::umem_dtor.
    void (*dtor)(umemVirtual *const ctx);
    /// See ::umem_is_accessible_from.
    bool (*is_accessible_from)(umemVirtual *const src_ctx, umemVirtual *const dest_ctx);
    /// See ::umem_alloc.
    uintptr_t (*alloc)(umemVirtual *const ctx, size_t nbytes);
    /// See ::umem_calloc.
    uintptr_t (*calloc)(umemVirtual *const ctx, size_t nmemb, size_t size);
    /// See ::umem_free.
    void (*free)(umemVirtual *const ctx, uintptr_t adr);
    /// See ::umem_aligned_alloc.
    uintptr_t (*aligned_alloc)(umemVirtual *const ctx, size_t alignment, size_t size);
    /// See ::umem_aligned_origin.
    uintptr_t (*aligned_origin)(umemVirtual *const ctx, uintptr_t aligned_adr);
    /// See ::umem_aligned_free.
    void (*aligned_free)(umemVirtual *const ctx, uintptr_t aligned_adr);
    /// See ::umem_set.
    void (*set)(umemVirtual *const ctx, uintptr_t adr, int c, size_t nbytes);
    /// See ::umem_copy_to.
    void (*copy_to)(umemVirtual *const src_ctx, uintptr_t src_adr, umemVirtual *const dest_ctx,
                    uintptr_t dest_adr, size_t nbytes);
    /// See ::umem_copy_from.
    void (*copy_from)(umemVirtual *const dest_ctx, uintptr_t dest_adr, umemVirtual *const src_ctx,
                      uintptr_t src_adr, size_t nbytes);
};

/// @brief Memory of the host. It is not malloc's: free it with ::umem_free.
typedef struct umemHost {
    /// Common part of all contexts.
    umemVirtual super;
} umemHost;

#if HAVE_CUDA_CONTEXT
/// @brief Memory of a GPU.
typedef struct umemCuda {
    /// Common part of all contexts.
    umemVirtual super;
    /// Host memory of this context.
    umemHost host;
    /// Number of the GPU.
    int device;
} umemCuda;
#endif

#if HAVE_CUDA_HOST_CONTEXT
/// @brief Pinned memory of the host.
typedef struct umemCudaHost {
    /// Common part of all contexts.
    umemVirtual super;
    /// Host memory of this context.
    umemHost host;
    /// Flags of cudaHostAlloc: 1 portable, 2 mapped, 4 write-combined.
    unsigned int flags;
} umemCudaHost;
#endif

#if HAVE_CUDA_MANAGED_CONTEXT
/// @brief Memory that moves between host and GPU.
typedef struct umemCudaManaged {
    /// Common part of all contexts.
    umemVirtual super;
    /// Host memory of this context.
    umemHost host;
    /// Flags of cudaMallocManaged: 1 every device, 2 the host at first.
    unsigned int flags;
    /// Copies and sets are put on `stream`.
    bool async;
    /// A cudaStream_t.
    uintptr_t stream;
} umemCudaManaged;
#endif

#if HAVE_RMM_CONTEXT
/// @brief Memory of a GPU by way of rmm.h.
typedef struct umemRMM {
    /// Common part of all contexts.
    umemVirtual super;
    /// Host memory of this context.
    umemHost host;
    /// Number of the GPU.
    int device;
    /// Copies and sets are put on `stream`.
    bool async;
    /// A cudaStream_t.
    uintptr_t stream;
} umemRMM;
#endif

#if HAVE_FILE_CONTEXT
/// @brief A file: addresses are offsets in it, 0 is one of them.
///
/// The first allocation opens the file, ::umem_free of any address closes it.
typedef struct umemFile {
    /// Common part of all contexts.
    umemVirtual super;
    /// Host memory of this context.
    umemHost host;
    /// The open file; 0: it is closed.
    uintptr_t fp;
    /// Its name; NULL: none was given.
    const char *filename;
    /// How it is opened, as for fopen; NULL: none was given.
    const char *mode;
} umemFile;
#endif

#if HAVE_MMAP_CONTEXT
/// @brief Memory in a file: addresses are pointers.
typedef struct umemMMap {
    /// Common part of all contexts.
    umemVirtual super;
    /// Host memory of this context.
    umemHost host;
    /// The open file; 0: it is closed.
    uintptr_t fp;
    /// Its name; NULL: none was given.
    const char *filename;
    /// How it is opened, as for fopen; NULL: none was given.
    const char *mode;
} umemMMap;
#endif

/// @name Status
/// @{

/// @brief Sets the status of a context.
///
/// A text is copied. If the context has one, it is added on a new line, after a line that names the
/// change of the type, if it did change.
///
/// @param ctx context
/// @param type the new type
/// @param message text; NULL drops the text that is there
UMEM_EXTERN void umem_set_status(void *const ctx, umemStatusType type, const char *message);

/// @brief Sets the status to ::umemOK without a text.
///
/// @param ctx context
UMEM_EXTERN void umem_clear_status(void *const ctx);

/// @brief The name of a kind of error: "ValueError".
///
/// @param type any value
/// @return static text; NULL if it is no kind of error
UMEM_EXTERN const char *umem_get_status_name(umemStatusType type);

/// @brief The name of a kind of context: "Cuda".
///
/// @param type any value
/// @return static text; NULL if it is no kind of context
UMEM_EXTERN const char *umem_get_device_name_from_type(umemDeviceType type);

/// @brief As ::umem_set_status, with a formatted text of at most 255 characters.
///
/// @param ctx context
/// @param type the new type
/// @param format as for printf; its arguments follow
#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
UMEM_EXTERN void
umem_format_status(void *const ctx, umemStatusType type, const char *format, ...);

/// @brief If CALL is true, sets status ERROR with a formatted text on the context ME, and executes
///        ERRRETURN. The text has at most 255 characters. The arguments after ERRRETURN are its
///        format and arguments.
#define TRY_RETURN(ME, CALL, ERROR, ERRRETURN, ...)                                                \
    do {                                                                                           \
        if (CALL) {                                                                                \
            umem_format_status((ME), (ERROR), __VA_ARGS__);                                        \
            ERRRETURN;                                                                             \
        }                                                                                          \
    } while (0)

/// @brief The type of the status.
///
/// @param ctx context
/// @return ::umemOK: there was no error
static inline umemStatusType umem_get_status(void *const ctx) {
    return ((umemVirtual *)ctx)->status.type;
}

/// @brief The text of the status.
///
/// @param ctx context
/// @return never NULL; valid until the status changes
static inline const char *umem_get_message(void *const ctx) {
    const char *message = ((umemVirtual *)ctx)->status.message;
    return message ? message : "";
}

/// @brief Tells whether there was no error.
///
/// @param ctx context
/// @return true: the status is ::umemOK
static inline bool umem_is_ok(void *const ctx) {
    return umem_get_status(ctx) == umemOK;
}

/// @}
/// @name Contexts
/// @{

/// @brief Makes a context of host memory.
///
/// @param ctx storage, not initialised
UMEM_EXTERN void umemHost_ctor(umemHost *const ctx);

#if HAVE_CUDA_CONTEXT
/// @brief Makes a context of a GPU's memory, and the GPU the calling thread's current one.
///
/// ::umemRuntimeError: there is no driver; ::umemValueError: there is no such device.
///
/// @param ctx storage, not initialised
/// @param device number of the GPU
UMEM_EXTERN void umemCuda_ctor(umemCuda *const ctx, int device);
#endif

#if HAVE_CUDA_HOST_CONTEXT
/// @brief Makes a context of pinned memory. Does not call the driver.
///
/// @param ctx storage, not initialised
/// @param flags of cudaHostAlloc: 0, or 1 portable, 2 mapped, 4 write-combined
UMEM_EXTERN void umemCudaHost_ctor(umemCudaHost *const ctx, unsigned int flags);
#endif

#if HAVE_CUDA_MANAGED_CONTEXT
/// @brief Makes a context of managed memory.
///
/// ::umemRuntimeError: there is no driver; ::umemNotSupportedError: the current device has no
/// managed memory.
///
/// @param ctx storage, not initialised
/// @param flags of cudaMallocManaged: 1 every device, 2 the host at first; 0 is stored as 1
/// @param async copies and sets are put on `stream`: those to and from unpinned host memory are
///        complete on return, others before any later call on the context
/// @param stream a cudaStream_t
UMEM_EXTERN void umemCudaManaged_ctor(umemCudaManaged *const ctx, unsigned int flags, bool async,
                                      uintptr_t stream);
#endif

#if HAVE_RMM_CONTEXT
/// @brief Makes a context of a GPU's memory that rmm.h manages. Does not call the driver.
///
/// @param ctx storage, not initialised
/// @param device number of the GPU
/// @param async as for ::umemCudaManaged_ctor
/// @param stream a cudaStream_t
UMEM_EXTERN void umemRMM_ctor(umemRMM *const ctx, int device, bool async, uintptr_t stream);
#endif

#if HAVE_FILE_CONTEXT
/// @brief Makes a context of a file, which the first allocation opens.
///
/// ::umemValueError: one of the texts is empty; both members are NULL then.
///
/// @param ctx storage, not initialised
/// @param filename copied
/// @param mode as for fopen: "r", "r+", "w", "w+", "a" or "a+", with or without "b"; copied
UMEM_EXTERN void umemFile_ctor(umemFile *const ctx, const char *filename, const char *mode);
#endif

#if HAVE_MMAP_CONTEXT
/// @brief Makes a context of memory in a file, which the first allocation opens.
///
/// Contexts of one process on the same file share its blocks. The file is open until the last block
/// is freed and the last context with it is destroyed. Errors as those of ::umemFile_ctor.
///
/// @param ctx storage, not initialised
/// @param filename copied
/// @param mode as for fopen; copied. "w" empties the file when the process opens it. With "r"
///        writes stay in the process.
UMEM_EXTERN void umemMMap_ctor(umemMMap *const ctx, const char *filename, const char *mode);
#endif

/// @brief Makes the first part of a program's own context.
///
/// Every operation reports ::umemNotImplementedError until the program sets a `vptr` of its own.
///
/// @param ctx storage, not initialised
/// @param host context of host memory, which ::umemVirtual_dtor destroys; NULL: none
UMEM_EXTERN void umemVirtual_ctor(umemVirtual *const ctx, umemHost *const host);

/// @brief Ends a context. Its status is ::umemOK then and may still be read; its memory is not
///        freed. A file is closed.
///
/// @param ctx context
static inline void umem_dtor(void *const ctx) {
    ((umemVirtual *)ctx)->vptr->dtor((umemVirtual *)ctx);
}

/// @brief The name of the kind of a context: "Cuda".
///
/// @param ctx context
/// @return static text; NULL if the kind is none
static inline const char *umem_get_device_name(void *const ctx) {
    return umem_get_device_name_from_type(((umemVirtual *)ctx)->type);
}

/// @brief Alignment of all addresses of a context.
///
/// @param ctx context
/// @return bytes, a power of two
static inline size_t umem_fundamental_align(void *const ctx) {
    switch (((umemVirtual *)ctx)->type) {
    case umemHostDevice:
        return UMEM_FUNDAMENTAL_HOST_ALIGN;
    case umemFileDevice:
        return UMEM_FUNDAMENTAL_FILE_ALIGN;
    case umemCudaDevice:
    case umemCudaManagedDevice:
    case umemRMMDevice:
        return UMEM_FUNDAMENTAL_CUDA_ALIGN;
    default:
        return 1;
    }
}

/// @brief Tells whether the devices of one context reach the memory of another.
///
/// @param src_ctx the context that has the memory
/// @param dest_ctx the context that is to use it
/// @return true if `dest_ctx` can use addresses of `src_ctx`; always for one and the same object
static inline bool umem_is_accessible_from(void *const src_ctx, void *const dest_ctx) {
    return src_ctx == dest_ctx ||
           ((umemVirtual *)src_ctx)
               ->vptr->is_accessible_from((umemVirtual *)src_ctx, (umemVirtual *)dest_ctx);
}

/// @brief Reports whether two contexts name the same memory: one object, or one kind with the same
///        device or file name.
///
/// @param one_ctx context
/// @param other_ctx context
/// @return true: they do
UMEM_EXTERN bool umem_is_same_device(void *const one_ctx, void *const other_ctx);

/// @}
/// @name Memory
/// @{

/// @brief Allocates memory.
///
/// @param ctx context
/// @param nbytes bytes; 0 gives 0
/// @return address; 0 and ::umemMemoryError: there is none. Of a file: the position in it; -1 and
///         ::umemIOError: it cannot be opened
static inline uintptr_t umem_alloc(void *const ctx, size_t nbytes) {
    return ((umemVirtual *)ctx)->vptr->alloc((umemVirtual *)ctx, nbytes);
}

/// @brief Allocates memory for an array, filled with zeros.
///
/// @param ctx context
/// @param nmemb members
/// @param size bytes of each
/// @return as ::umem_alloc
static inline uintptr_t umem_calloc(void *const ctx, size_t nmemb, size_t size) {
    return ((umemVirtual *)ctx)->vptr->calloc((umemVirtual *)ctx, nmemb, size);
}

/// @brief Frees memory.
///
/// @param ctx context of the same kind and device
/// @param adr of ::umem_alloc, ::umem_calloc or ::umem_aligned_origin; 0: nothing is done. Of a
///        file: any; it is closed
static inline void umem_free(void *const ctx, uintptr_t adr) {
    ((umemVirtual *)ctx)->vptr->free((umemVirtual *)ctx, adr);
}

/// @brief Allocates memory at an aligned address, filled with zeros.
///
/// @param ctx context
/// @param alignment a power of two, else ::umemValueError
/// @param size bytes, a multiple of `alignment`, else ::umemValueError; 0 gives an address, too
/// @return address; 0: there was an error
static inline uintptr_t umem_aligned_alloc(void *const ctx, size_t alignment, size_t size) {
    return ((umemVirtual *)ctx)->vptr->aligned_alloc((umemVirtual *)ctx, alignment, size);
}

/// @brief The start of the block of an aligned address.
///
/// @param ctx context
/// @param aligned_adr of ::umem_aligned_alloc; 0 gives 0
/// @return address for ::umem_free
static inline uintptr_t umem_aligned_origin(void *const ctx, uintptr_t aligned_adr) {
    return ((umemVirtual *)ctx)->vptr->aligned_origin((umemVirtual *)ctx, aligned_adr);
}

/// @brief Frees memory of ::umem_aligned_alloc.
///
/// @param ctx context of the same kind and device
/// @param aligned_adr address; 0: nothing is done. Of a file: any; it is closed
static inline void umem_aligned_free(void *const ctx, uintptr_t aligned_adr) {
    ((umemVirtual *)ctx)->vptr->aligned_free((umemVirtual *)ctx, aligned_adr);
}

/// @brief Sets bytes.
///
/// @param ctx context
/// @param adr first of them
/// @param c their value
/// @param nbytes how many
static inline void umem_set(void *const ctx, uintptr_t adr, int c, size_t nbytes) {
    ((umemVirtual *)ctx)->vptr->set((umemVirtual *)ctx, adr, c, nbytes);
}

/// @brief Sets bytes of a range of known size.
///
/// @param ctx context; gets ::umemIndexError, and nothing is done, if `nbytes` is above `size`
/// @param adr first of them
/// @param size of the range
/// @param c their value
/// @param nbytes how many
static inline void umem_set_safe(void *const ctx, uintptr_t adr, size_t size, int c,
                                 size_t nbytes) {
    TRY_RETURN(ctx, nbytes > size, umemIndexError, return,
               "umem_set_safe: nbytes %zu is above the size %zu", nbytes, size);
    umem_set(ctx, adr, c, nbytes);
}

/// @}
/// @name Copies
/// @{

/// @brief Copies from one context to another.
///
/// @param src_ctx context of the source
/// @param src_adr source
/// @param dest_ctx context of the destination
/// @param dest_adr destination; must not overlap the source
/// @param nbytes bytes
static inline void umem_copy_to(void *const src_ctx, uintptr_t src_adr, void *const dest_ctx,
                                uintptr_t dest_adr, size_t nbytes) {
    ((umemVirtual *)src_ctx)
        ->vptr->copy_to((umemVirtual *)src_ctx, src_adr, (umemVirtual *)dest_ctx, dest_adr, nbytes);
}

/// @brief As ::umem_copy_to, with the destination first.
///
/// @param dest_ctx context of the destination
/// @param dest_adr destination; must not overlap the source
/// @param src_ctx context of the source
/// @param src_adr source
/// @param nbytes bytes
static inline void umem_copy_from(void *const dest_ctx, uintptr_t dest_adr, void *const src_ctx,
                                  uintptr_t src_adr, size_t nbytes) {
    ((umemVirtual *)dest_ctx)
        ->vptr->copy_from((umemVirtual *)dest_ctx, dest_adr, (umemVirtual *)src_ctx, src_adr,
                          nbytes);
}

/// @brief As ::umem_copy_to, between ranges of known size.
///
/// @param src_ctx context; gets ::umemIndexError if `nbytes` is above `src_size`
/// @param src_adr source
/// @param src_size size of the source
/// @param dest_ctx context; else gets ::umemIndexError if `nbytes` is above `dest_size`
/// @param dest_adr destination
/// @param dest_size size of the destination
/// @param nbytes bytes; nothing is done after an error
static inline void umem_copy_to_safe(void *const src_ctx, uintptr_t src_adr, size_t src_size,
                                     void *const dest_ctx, uintptr_t dest_adr, size_t dest_size,
                                     size_t nbytes) {
    TRY_RETURN(src_ctx, nbytes > src_size, umemIndexError, return,
               "umem_copy_to_safe: nbytes %zu is above the size %zu of the source", nbytes,
               src_size);
    TRY_RETURN(dest_ctx, nbytes > dest_size, umemIndexError, return,
               "umem_copy_to_safe: nbytes %zu is above the size %zu of the destination", nbytes,
               dest_size);
    umem_copy_to(src_ctx, src_adr, dest_ctx, dest_adr, nbytes);
}

/// @brief As ::umem_copy_from, between ranges of known size.
///
/// @param dest_ctx context; gets ::umemIndexError if only its range is too short
/// @param dest_adr destination
/// @param dest_size size of the destination
/// @param src_ctx context; gets ::umemIndexError if `nbytes` is above `src_size`
/// @param src_adr source
/// @param src_size size of the source
/// @param nbytes bytes; nothing is done after an error
static inline void umem_copy_from_safe(void *const dest_ctx, uintptr_t dest_adr, size_t dest_size,
                                       void *const src_ctx, uintptr_t src_adr, size_t src_size,
                                       size_t nbytes) {
    TRY_RETURN(src_ctx, nbytes > src_size, umemIndexError, return,
               "umem_copy_from_safe: nbytes %zu is above the size %zu of the source", nbytes,
               src_size);
    TRY_RETURN(dest_ctx, nbytes > dest_size, umemIndexError, return,
               "umem_copy_from_safe: nbytes %zu is above the size %zu of the destination", nbytes,
               dest_size);
    umem_copy_from(dest_ctx, dest_adr, src_ctx, src_adr, nbytes);
}

/// @brief As ::umem_copy_to, by way of a buffer in host memory: each half is a copy of its context.
///
/// @param src_ctx context of the source; gets ::umemMemoryError if there is no buffer
/// @param src_adr source
/// @param dest_ctx context of the destination
/// @param dest_adr destination
/// @param nbytes bytes
UMEM_EXTERN void umem_copy_to_via_host(void *const src_ctx, uintptr_t src_adr, void *const dest_ctx,
                                       uintptr_t dest_adr, size_t nbytes);

/// @brief As ::umem_copy_from, by way of a buffer in host memory.
///
/// @param dest_ctx context of the destination; gets ::umemMemoryError if there is no buffer
/// @param dest_adr destination
/// @param src_ctx context of the source
/// @param src_adr source
/// @param nbytes bytes
UMEM_EXTERN void umem_copy_from_via_host(void *const dest_ctx, uintptr_t dest_adr,
                                         void *const src_ctx, uintptr_t src_adr, size_t nbytes);

/// @}
/// @name Connections
/// Two contexts are *linked* if each is accessible from the other.
/// @{

/// @brief Gives a range a place in another context: the range itself if the contexts are linked and
///        it is aligned, else a copy.
///
/// @param src_ctx context of the range
/// @param src_adr the range
/// @param nbytes its size; needs to be no multiple of the alignment
/// @param dest_ctx the other context
/// @param dest_alignment 0, or a power of two
/// @return address in `dest_ctx`, for ::umem_disconnect; 0: the status of one of them has the cause
UMEM_EXTERN uintptr_t umem_connect(void *const src_ctx, uintptr_t src_adr, size_t nbytes,
                                   void *const dest_ctx, size_t dest_alignment);

/// @brief Ends a connection: frees the copy, if there is one.
///
/// @param src_ctx as for ::umem_connect
/// @param src_adr as for ::umem_connect
/// @param dest_ctx as for ::umem_connect
/// @param dest_adr result of ::umem_connect
/// @param dest_alignment as for ::umem_connect
UMEM_EXTERN void umem_disconnect(void *const src_ctx, uintptr_t src_adr, void *const dest_ctx,
                                 uintptr_t dest_adr, size_t dest_alignment);

/// @brief Brings the content of the source to the destination: ::umem_copy_to, but nothing if the
///        contexts are linked and the addresses equal.
///
/// @param src_ctx context of the source
/// @param src_adr source
/// @param dest_ctx context of the destination
/// @param dest_adr destination
/// @param nbytes bytes
UMEM_EXTERN void umem_sync_to(void *const src_ctx, uintptr_t src_adr, void *const dest_ctx,
                              uintptr_t dest_adr, size_t nbytes);

/// @brief As ::umem_sync_to, with the destination first.
///
/// @param dest_ctx context of the destination
/// @param dest_adr destination
/// @param src_ctx context of the source
/// @param src_adr source
/// @param nbytes bytes
UMEM_EXTERN void umem_sync_from(void *const dest_ctx, uintptr_t dest_adr, void *const src_ctx,
                                uintptr_t src_adr, size_t nbytes);

/// @brief As ::umem_sync_to, by ::umem_copy_to_safe.
///
/// @param src_ctx context of the source
/// @param src_adr source
/// @param src_size size of the source
/// @param dest_ctx context of the destination
/// @param dest_adr destination
/// @param dest_size size of the destination
/// @param nbytes bytes
UMEM_EXTERN void umem_sync_to_safe(void *const src_ctx, uintptr_t src_adr, size_t src_size,
                                   void *const dest_ctx, uintptr_t dest_adr, size_t dest_size,
                                   size_t nbytes);

/// @brief As ::umem_sync_from, by ::umem_copy_from_safe.
///
/// @param dest_ctx context of the destination
/// @param dest_adr destination
/// @param dest_size size of the destination
/// @param src_ctx context of the source
/// @param src_adr source
/// @param src_size size of the source
/// @param nbytes bytes
UMEM_EXTERN void umem_sync_from_safe(void *const dest_ctx, uintptr_t dest_adr, size_t dest_size,
                                     void *const src_ctx, uintptr_t src_adr, size_t src_size,
                                     size_t nbytes);

/// @}
/// @name Operations that a program's own context may have in its table
/// They use the other operations of the context.
/// @{

/// @brief Clears the status, and destroys `host_ctx` unless it is NULL.
///
/// @param ctx context
UMEM_EXTERN void umemVirtual_dtor(umemVirtual *const ctx);

/// @brief No.
///
/// @param src_ctx context
/// @param dest_ctx context
/// @return false
UMEM_EXTERN bool umemVirtual_is_accessible_from(umemVirtual *const src_ctx,
                                                umemVirtual *const dest_ctx);

/// @brief Allocates, then sets all bytes to 0.
///
/// @param ctx context
/// @param nmemb members
/// @param size bytes of each
/// @return as ::umem_calloc
UMEM_EXTERN uintptr_t umemVirtual_calloc(umemVirtual *const ctx, size_t nmemb, size_t size);

/// @brief Allocates more, and keeps the start of the block in the word before the aligned address.
///
/// @param ctx context
/// @param alignment as for ::umem_aligned_alloc
/// @param size as for ::umem_aligned_alloc
/// @return as ::umem_aligned_alloc
UMEM_EXTERN uintptr_t umemVirtual_aligned_alloc(umemVirtual *const ctx, size_t alignment,
                                                size_t size);

/// @brief Reads the word before the address.
///
/// @param ctx context
/// @param aligned_adr of ::umemVirtual_aligned_alloc
/// @return as ::umem_aligned_origin
UMEM_EXTERN uintptr_t umemVirtual_aligned_origin(umemVirtual *const ctx, uintptr_t aligned_adr);

/// @brief Frees the block whose address is in the word before `aligned_adr`.
///
/// @param ctx context
/// @param aligned_adr of ::umemVirtual_aligned_alloc
UMEM_EXTERN void umemVirtual_aligned_free(umemVirtual *const ctx, uintptr_t aligned_adr);

/// @}
/// @name Names that the documentation of libumem has
/// @{

/// @brief ::umem_aligned_free
///
/// @param ctx as there
/// @param aligned_adr as there
static inline void umem_free_aligned(void *const ctx, uintptr_t aligned_adr) {
    umem_aligned_free(ctx, aligned_adr);
}

/// @brief ::umem_clear_status
///
/// @param ctx as there
static inline void umem_clean_status(void *const ctx) {
    umem_clear_status(ctx);
}

/// @}

UMEM_CLOSE_EXTERN_C

#ifdef __cplusplus
#include "umem.hpp"
#endif

#endif /* UMEM_H */
