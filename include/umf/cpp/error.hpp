/** @file
 * Errors of the C++ interface: a code and a text, thrown or returned.
 *
 * Each function that throws has a twin that returns a umf::result, for programs without exceptions.
 * There a function that would throw writes the text to stderr and aborts.
 */
#ifndef UMF_CPP_ERROR_HPP
#define UMF_CPP_ERROR_HPP 1

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <umf/base.h>
#include <umf/fwd.hpp>
#include <umf/reason.h>
#include <umf/result.h>

UMF_CPP_BEGIN

/// @brief Why something failed: a result code, and words for people.
class error {
  public:
    /// @brief An error with a text of its own.
    /// @param code anything but ::UMF_RESULT_SUCCESS
    /// @param text the failed operation and its cause
    error(umf_result_t code, std::string text) noexcept : code_(code), text_(std::move(text)) {}

    /// @brief The result code.
    /// @return never ::UMF_RESULT_SUCCESS
    umf_result_t code() const noexcept {
        return code_;
    }

    /// @brief The failed operation and its cause, with the text of the provider or its driver.
    /// @return one line
    const std::string &text() const noexcept {
        return text_;
    }

  private:
    umf_result_t code_;
    std::string text_;
};

/// @brief An umf::error that was thrown. Allocations throw umf::bad_alloc instead.
class exception : public std::runtime_error {
  public:
    /// @brief Takes code and text of an error.
    /// @param error the error
    explicit exception(const umf::error &error)
        : std::runtime_error(error.text()), code_(error.code()) {}

    /// @brief The result code.
    /// @return never ::UMF_RESULT_SUCCESS
    umf_result_t code() const noexcept {
        return code_;
    }

  private:
    umf_result_t code_;
};

/// @brief An allocation that failed.
class bad_alloc : public std::bad_alloc {
  public:
    /// @brief Makes the text, without an allocation.
    /// @param code why
    /// @param size bytes of the request
    /// @param from name of the pool or provider
    /// @param cause the last error of the thread (umf/reason.h); "": the text of the code is used
    bad_alloc(umf_result_t code, std::size_t size, const char *from, const char *cause) noexcept
        : code_(code) {
        std::snprintf(text_, sizeof(text_), "allocating %zu bytes from %s: %s", size, from,
                      *cause ? cause : umfResultText(code));
    }

    /// @brief The result code.
    /// @return never ::UMF_RESULT_SUCCESS
    umf_result_t code() const noexcept {
        return code_;
    }

    /// @brief The request, the pool or provider, and the cause of the failure.
    /// @return one line, valid as long as the exception
    const char *what() const noexcept override {
        return text_;
    }

  private:
    umf_result_t code_;
    char text_[640];
};

namespace detail {

inline error failure(umf_result_t code, const std::string &what, const char *cause) {
    return error(code, what + ": " + (*cause ? cause : umfResultText(code)));
}

// With the text that the library logged, or would have logged, in this thread.
inline error failure(umf_result_t code, const std::string &what) {
    return failure(code, what, umfLastErrorText());
}

template <class Exception> [[noreturn]] void raise(const Exception &exception) {
#if defined(__cpp_exceptions)
    throw exception;
#else
    std::fprintf(stderr, "umf: %s\n", exception.what());
    std::abort();
#endif
}

} // namespace detail

/// @brief A value, or why there is none.
/// @tparam T type of the value; void: only success or failure
template <class T> class [[nodiscard]] result {
  public:
    /// @brief Holds a value.
    /// @param value moved
    result(T value) : held_(std::in_place_index<0>, std::move(value)) {}

    /// @brief Holds an error.
    /// @param error moved
    result(umf::error error) : held_(std::in_place_index<1>, std::move(error)) {}

    /// @brief Tells whether there is a value.
    explicit operator bool() const noexcept {
        return held_.index() == 0;
    }

    /// @brief The value.
    /// @return valid as long as this
    /// @throws umf::exception if there is none
    T &value() & {
        check();
        return **this;
    }

    /// @brief The value, to be moved from.
    /// @return valid as long as this
    /// @throws umf::exception if there is none
    T &&value() && {
        check();
        return *std::move(*this);
    }

    /// @brief The value.
    /// @return valid as long as this
    /// @throws umf::exception if there is none
    const T &value() const & {
        check();
        return **this;
    }

    /// @brief The value, which must be there.
    /// @return valid as long as this
    T &operator*() &noexcept {
        return *std::get_if<0>(&held_);
    }

    /// @brief The value, which must be there, to be moved from.
    /// @return valid as long as this
    T &&operator*() &&noexcept {
        return std::move(*std::get_if<0>(&held_));
    }

    /// @brief The value, which must be there.
    /// @return valid as long as this
    const T &operator*() const &noexcept {
        return *std::get_if<0>(&held_);
    }

    /// @brief A member of the value, which must be there.
    /// @return valid as long as this
    T *operator->() noexcept {
        return std::get_if<0>(&held_);
    }

    /// @brief A member of the value, which must be there.
    /// @return valid as long as this
    const T *operator->() const noexcept {
        return std::get_if<0>(&held_);
    }

    /// @brief A copy of the value, or another one.
    /// @param other if there is no value
    /// @return either
    template <class U> T value_or(U &&other) const & {
        return *this ? **this : static_cast<T>(std::forward<U>(other));
    }

    /// @brief The value, moved, or another one.
    /// @param other if there is no value
    /// @return either
    template <class U> T value_or(U &&other) && {
        return *this ? *std::move(*this) : static_cast<T>(std::forward<U>(other));
    }

    /// @brief Calls a function with the value, if there is one.
    /// @param function of the value; returns a result
    /// @return its result, or this error
    template <class Function> auto and_then(Function &&function) & {
        return then(std::forward<Function>(function), *this);
    }

    /// @brief Calls a function with the value, if there is one.
    /// @param function of the value; returns a result
    /// @return its result, or this error
    template <class Function> auto and_then(Function &&function) const & {
        return then(std::forward<Function>(function), *this);
    }

    /// @brief Calls a function with the value, moved, if there is one.
    /// @param function of the value; returns a result
    /// @return its result, or this error
    template <class Function> auto and_then(Function &&function) && {
        return then(std::forward<Function>(function), std::move(*this));
    }

    /// @brief The error, which must be there.
    /// @return valid as long as this
    const umf::error &error() const noexcept {
        return *std::get_if<1>(&held_);
    }

    /// @brief The result code.
    /// @return ::UMF_RESULT_SUCCESS if there is a value
    umf_result_t code() const noexcept {
        return *this ? UMF_RESULT_SUCCESS : error().code();
    }

  private:
    // Without a value there is nothing to refer to.
    template <class Function, class Self> static auto then(Function &&function, Self &&self) {
        using Next =
            std::decay_t<std::invoke_result_t<Function, decltype(*std::forward<Self>(self))>>;
        return self ? Next(std::invoke(std::forward<Function>(function), *std::forward<Self>(self)))
                    : Next(self.error());
    }

    void check() const {
        if (!*this) {
            detail::raise(umf::exception(error()));
        }
    }

    std::variant<T, umf::error> held_;
};

/// @brief Success, or why not.
template <> class [[nodiscard]] result<void> {
  public:
    /// @brief Success.
    result() noexcept = default;

    /// @brief Holds an error.
    /// @param error moved
    result(umf::error error) noexcept : error_(std::move(error)) {}

    /// @brief Tells whether it is success.
    explicit operator bool() const noexcept {
        return !error_;
    }

    /// @brief Returns if it is success.
    /// @throws umf::exception if not
    void value() const {
        if (error_) {
            detail::raise(umf::exception(*error_));
        }
    }

    /// @brief The error, which must be there.
    /// @return valid as long as this
    const umf::error &error() const noexcept {
        return *error_;
    }

    /// @brief The result code.
    /// @return ::UMF_RESULT_SUCCESS if it is success
    umf_result_t code() const noexcept {
        return error_ ? error_->code() : UMF_RESULT_SUCCESS;
    }

  private:
    std::optional<umf::error> error_;
};

namespace detail {

inline result<void> checked(umf_result_t code, const char *what) {
    if (code != UMF_RESULT_SUCCESS) {
        return failure(code, what);
    }
    return {};
}

} // namespace detail

UMF_CPP_END

#endif /* UMF_CPP_ERROR_HPP */
