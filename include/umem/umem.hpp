/** @file
 * The contexts of umem.h as C++ classes, and Address, which has its context and its size.
 */
#ifndef UMEM_HPP
#define UMEM_HPP 1

#include <assert.h>

#include <iostream>
#include <memory>
#include <string>
#include <type_traits>

#include "umem.h"

#if HAVE_RMM_CONTEXT
/// As the documentation of libumem has it: without `async`.
inline void umemRMM_ctor(umemRMM *const ctx, int device, uintptr_t stream) {
    umemRMM_ctor(ctx, device, false, stream);
}
#endif

namespace umem {

class Address;

/// A context. It is not copied, and outlives the addresses that come from it.
class Context {
  public:
    Context() = default;
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;
    virtual ~Context() = default;

    /// The context of umem.h.
    virtual void *get_raw_context() = 0;

    /// Each address frees its memory when it ends.
    Address alloc(size_t nbytes);
    Address calloc(size_t nmemb, size_t size);
    Address aligned_alloc(size_t alignment, size_t size);

    bool is_accessible_from(Context &other) {
        return umem_is_accessible_from(get_raw_context(), other.get_raw_context());
    }
    bool is_ok() {
        return umem_is_ok(get_raw_context());
    }
    std::string get_message() {
        return umem_get_message(get_raw_context());
    }
    umemStatusType get_status() {
        return umem_get_status(get_raw_context());
    }
    void set_status(umemStatusType type, const char *message) {
        umem_set_status(get_raw_context(), type, message);
    }
    void set_status(umemStatusType type, const std::string &message) {
        umem_set_status(get_raw_context(), type, message.c_str());
    }
    void clear_status() {
        umem_clear_status(get_raw_context());
    }
};

/// A range of memory of a context. It must die before its context, and before the address it is
/// connected to.
class Address {
  public:
    /// `own`: the memory is freed at the end. `mate`: the address that this one is connected to.
    Address(uintptr_t adr, size_t alignment, size_t size, void *raw_ctx, bool own = false,
            Address *mate = NULL)
        : adr_(adr), alignment_(alignment), size_(size), ctx_(raw_ctx), own_(own), mate_(mate) {}
    /// A copy does not own the memory.
    Address(const Address &other)
        : adr_(other.adr_), alignment_(other.alignment_), size_(other.size_), ctx_(other.ctx_),
          own_(false), mate_(other.mate_) {}
    /// Moving takes over the block of the other one.
    Address(Address &&other) noexcept
        : adr_(other.adr_), alignment_(other.alignment_), size_(other.size_), ctx_(other.ctx_),
          own_(other.own_), mate_(other.mate_) {
        other.own_ = false;
    }
    Address &operator=(const Address &) = delete;

    ~Address() {
        if (!own_) {
            return;
        }
        if (mate_) {
            umem_disconnect(mate_->ctx_, mate_->adr_, ctx_, adr_, alignment_);
        } else if (alignment_) {
            umem_aligned_free(ctx_, adr_);
        } else {
            umem_free(ctx_, adr_);
        }
    }

    size_t size() const {
        return size_;
    }
    /// The requested alignment; 0: none was requested.
    size_t alignment() const {
        return alignment_;
    }
    /// The start of the block; does not own it.
    Address origin() const {
        if (!alignment_) {
            return Address(adr_, 0, size_, ctx_);
        }
        uintptr_t start = umem_aligned_origin(ctx_, adr_);
        return Address(start, 0, size_ + (adr_ - start), ctx_);
    }

    void copy_to(const Address &dest, size_t nbytes) const {
        umem_copy_to_safe(ctx_, adr_, size_, dest.ctx_, dest.adr_, dest.size_, nbytes);
    }
    void copy_from(const Address &src, size_t nbytes) const {
        umem_copy_from_safe(ctx_, adr_, size_, src.ctx_, src.adr_, src.size_, nbytes);
    }
    void copy_from(const std::string &src, size_t nbytes) const {
        TRY_RETURN(ctx_, nbytes > src.size(), umemIndexError, return,
                   "copy_from: nbytes %zu is above the length %zu of the string", nbytes,
                   src.size());
        umemHost host;
        umemHost_ctor(&host);
        umem_copy_from_safe(ctx_, adr_, size_, &host, reinterpret_cast<uintptr_t>(src.data()),
                            src.size(), nbytes);
        umem_dtor(&host);
    }
    void sync_to(const Address &dest, size_t nbytes) const {
        umem_sync_to_safe(ctx_, adr_, size_, dest.ctx_, dest.adr_, dest.size_, nbytes);
    }
    void sync_from(const Address &src, size_t nbytes) const {
        umem_sync_from_safe(ctx_, adr_, size_, src.ctx_, src.adr_, src.size_, nbytes);
    }
    void set(int c, size_t nbytes) const {
        umem_set_safe(ctx_, adr_, size_, c, nbytes);
    }

    /// The same memory, or a copy, in another context.
    Address connect(Context &dest, size_t nbytes, size_t alignment = 0) {
        return connect_raw(dest.get_raw_context(), nbytes, alignment);
    }
    /// The same in the context of host memory that belongs to this one.
    Address connect(size_t nbytes, size_t alignment = 0) {
        return connect_raw(static_cast<umemVirtual *>(ctx_)->host_ctx, nbytes, alignment);
    }
    /// Of a connected address: brings its content to the mate.
    void sync(size_t nbytes) const {
        TRY_RETURN(ctx_, !mate_, umemAssertError, return, "sync: the address is not connected");
        sync_to(*mate_, nbytes);
    }
    /// Of a connected address: gets the content of the mate.
    void update(size_t nbytes) const {
        TRY_RETURN(ctx_, !mate_, umemAssertError, return, "update: the address is not connected");
        sync_from(*mate_, nbytes);
    }

    char &operator[](size_t index) const {
        return reinterpret_cast<char *>(adr_)[index];
    }
    // Of other types of integers, the conversions to pointers would be as good a match.
    template <typename Integer>
    typename std::enable_if<std::is_integral<Integer>::value, char &>::type
    operator[](Integer index) const {
        return reinterpret_cast<char *>(adr_)[index];
    }

    operator uintptr_t() const {
        return adr_;
    }
    operator void *() const {
        return to<void>();
    }
    operator bool *() const {
        return to<bool>();
    }
    operator char *() const {
        return to<char>();
    }
    operator short *() const {
        return to<short>();
    }
    operator int *() const {
        return to<int>();
    }
    operator long *() const {
        return to<long>();
    }
    operator long long *() const {
        return to<long long>();
    }
    operator unsigned char *() const {
        return to<unsigned char>();
    }
    operator unsigned short *() const {
        return to<unsigned short>();
    }
    operator unsigned int *() const {
        return to<unsigned int>();
    }
    operator unsigned long *() const {
        return to<unsigned long>();
    }
    operator unsigned long long *() const {
        return to<unsigned long long>();
    }
    operator float *() const {
        return to<float>();
    }
    operator double *() const {
        return to<double>();
    }

    bool operator==(const Address &other) const {
        return adr_ == other.adr_;
    }
    bool operator==(int other) const {
        return adr_ == static_cast<uintptr_t>(other);
    }
    template <typename Integer>
    typename std::enable_if<std::is_integral<Integer>::value, bool>::type
    operator==(Integer other) const {
        return adr_ == static_cast<uintptr_t>(other);
    }
#if __cplusplus < 202002L // later versions make it from the one above, also with operands exchanged
    template <typename Other> bool operator!=(const Other &other) const {
        return !(*this == other);
    }
#endif

    /// Does not own the memory; the size shrinks.
    Address operator+(int offset) const {
        return moved(static_cast<size_t>(offset));
    }
    Address operator+(size_t offset) const {
        return moved(offset);
    }
    template <typename Integer>
    typename std::enable_if<std::is_integral<Integer>::value, Address>::type
    operator+(Integer offset) const {
        return moved(static_cast<size_t>(offset));
    }

    int operator%(int divisor) const {
        return static_cast<int>(adr_ % static_cast<uintptr_t>(divisor));
    }
    size_t operator%(size_t divisor) const {
        return adr_ % divisor;
    }
    template <typename Integer>
    typename std::enable_if<std::is_integral<Integer>::value, Integer>::type
    operator%(Integer divisor) const {
        return static_cast<Integer>(adr_ % static_cast<uintptr_t>(divisor));
    }

  private:
    uintptr_t adr_;
    size_t alignment_;
    size_t size_;
    void *ctx_;
    bool own_;
    Address *mate_;

    template <typename T> T *to() const {
        return reinterpret_cast<T *>(adr_);
    }
    // A negative offset, as a size, wraps: the size grows again.
    Address moved(size_t offset) const {
        bool is_back = offset > SIZE_MAX / 2;
        return Address(adr_ + offset, 0, offset <= size_ || is_back ? size_ - offset : 0, ctx_);
    }
    Address connect_raw(void *dest, size_t nbytes, size_t alignment) {
        uintptr_t adr = umem_connect(ctx_, adr_, nbytes, dest, alignment);
        // Offset 0 of a file is an address.
        bool own = adr != 0 || static_cast<umemVirtual *>(dest)->type == umemFileDevice;
        return Address(adr, alignment, nbytes, dest, own, this);
    }
};

inline Address Context::alloc(size_t nbytes) {
    void *ctx = get_raw_context();
    uintptr_t adr = umem_alloc(ctx, nbytes);
    bool is_file = static_cast<umemVirtual *>(ctx)->type == umemFileDevice;
    return Address(adr, 0, nbytes, ctx, is_file ? adr != UINTPTR_MAX : adr != 0);
}

inline Address Context::calloc(size_t nmemb, size_t size) {
    void *ctx = get_raw_context();
    uintptr_t adr = umem_calloc(ctx, nmemb, size);
    bool is_file = static_cast<umemVirtual *>(ctx)->type == umemFileDevice;
    return Address(adr, 0, nmemb * size, ctx, is_file ? adr != UINTPTR_MAX : adr != 0);
}

inline Address Context::aligned_alloc(size_t alignment, size_t size) {
    void *ctx = get_raw_context();
    uintptr_t adr = umem_aligned_alloc(ctx, alignment, size);
    return Address(adr, alignment, size, ctx, adr != 0);
}

/// A class for a context of umem.h.
template <typename Raw> class ContextOf : public Context {
  public:
    ~ContextOf() override {
        umem_dtor(&raw_);
    }
    void *get_raw_context() override {
        return &raw_;
    }

  protected:
    Raw raw_;
};

class Host : public ContextOf<umemHost> {
  public:
    Host() {
        umemHost_ctor(&raw_);
    }
};

#if HAVE_FILE_CONTEXT
class File : public ContextOf<umemFile> {
  public:
    File(std::string filename, std::string mode = "wb") {
        umemFile_ctor(&raw_, filename.c_str(), mode.c_str());
    }
};
#endif

#if HAVE_MMAP_CONTEXT
class MMap : public ContextOf<umemMMap> {
  public:
    MMap(std::string filename, std::string mode = "wb") {
        umemMMap_ctor(&raw_, filename.c_str(), mode.c_str());
    }
};
#endif

#if HAVE_CUDA_CONTEXT
class Cuda : public ContextOf<umemCuda> {
  public:
    Cuda(int device) {
        umemCuda_ctor(&raw_, device);
    }
};
#endif

#if HAVE_CUDA_HOST_CONTEXT
class CudaHost : public ContextOf<umemCudaHost> {
  public:
    CudaHost(unsigned int flags = 0) {
        umemCudaHost_ctor(&raw_, flags);
    }
};
#endif

#if HAVE_CUDA_MANAGED_CONTEXT
class CudaManaged : public ContextOf<umemCudaManaged> {
  public:
    CudaManaged(unsigned int flags = 0, bool async = false, uintptr_t stream = 0) {
        umemCudaManaged_ctor(&raw_, flags, async, stream);
    }
};
#endif

#if HAVE_RMM_CONTEXT
class RMM : public ContextOf<umemRMM> {
  public:
    RMM(int device = 0, uintptr_t stream = 0, bool async = false) {
        umemRMM_ctor(&raw_, device, async, stream);
    }
};
#endif

} // namespace umem

#endif // UMEM_HPP
