/** @file
 * Declares the classes of the C++ interface, for headers that only name them. It includes nothing.
 */
#ifndef UMF_FWD_HPP
#define UMF_FWD_HPP 1

/// @cond
// Files that are compiled with and without exceptions may be parts of one program.
#if defined(__cpp_exceptions)
#define UMF_CPP_BEGIN namespace umf {
#define UMF_CPP_END }
#else
#define UMF_CPP_BEGIN                                                                              \
    namespace umf {                                                                                \
    inline namespace without_exceptions {
#define UMF_CPP_END                                                                                \
    }                                                                                              \
    }
#endif

UMF_CPP_BEGIN

class error;
class exception;
class bad_alloc;
template <class T> class result;

class provider_ref;
class provider;
class pool_ref;
class pool;
class current_pool_scope;

template <class T> struct deleter;
template <class T> struct deleter_on;
template <class T, class Deleter = deleter<T[]>> class buffer;
class memory_resource;
template <class T> class allocator;

class queues;
class suspend_scope;

class vault;
class vault_claim;
class vault_draft;
class vault_view;

struct allocation_statistics;
struct allocation_event;
class csv_sink;
template <class Self, class Below> class adaptor;
template <class Below> class limit_adaptor;
template <class Below> class statistics_adaptor;
template <class Below, class Sink> class logging_adaptor;
template <class Below, class Callback> class failure_callback_adaptor;
template <class Below> class aligned_adaptor;
template <class Below> class adaptor_resource;

UMF_CPP_END
/// @endcond

#endif /* UMF_FWD_HPP */
