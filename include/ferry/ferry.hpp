/* Ferry from C++17: objects that destroy their handles, and failures as exceptions.
 *
 *     ferry::device device = ferry::open("sim:0");
 *     ferry::tensor w = ferry::wrap(data, { 2, 3 });
 *     ferry::tensor x = ferry::call(fy_tensor_upload, w, device, nullptr);
 *     ferry::tensor y = ferry::call(fy_add, x, x);
 *
 * A thin header: it has no second set of functions. ferry::call takes every C function whose last
 * parameter is an out pointer, and returns that result; ferry::run takes those without a result.
 * Objects convert to their C handles there; elsewhere use get().
 * Ownership: an object owns its handle alone, also inside a scope (it calls fy_..._keep).
 * Without exceptions (-fno-exceptions), define FERRY_FAILED(status) before you include this header:
 * a statement that runs when a call fails, such as std::abort(). The call then returns an empty
 * object or a zero. */
#ifndef FERRY_FERRY_HPP_
#define FERRY_FERRY_HPP_

#include <cstdint>
#include <initializer_list>
#include <tuple>
#include <type_traits>
#include <utility>

#include <ferry/ferry.h>

#if defined(__cpp_exceptions)
#include <stdexcept>
#elif !defined(FERRY_FAILED)
#error "ferry.hpp without exceptions: define FERRY_FAILED(status), a statement, before it"
#endif

namespace ferry
{

#if defined(__cpp_exceptions)
/* A failed call: what() is the text of the error record, with the hint. */
class error : public std::runtime_error
{
  public:
    explicit error(fy_status_t status) : std::runtime_error(fy_error_get()->text), status_(status)
    {
    }
    fy_status_t status() const noexcept { return status_; }

  private:
    fy_status_t status_;
};
#endif

/* Throws ferry::error if `status` is a failure; without exceptions it runs FERRY_FAILED. */
inline void check(fy_status_t status)
{
    if (status == FY_STATUS_OK) return;
#if defined(__cpp_exceptions)
    throw error(status);
#else
    FERRY_FAILED(status);
#endif
}

namespace detail
{
inline void keep_nothing(void *) {}

/* How a handle is destroyed, and taken out of its scope. */
template <typename T> struct traits;
#define FERRY_TRAITS_(type, destroy_, keep_)                             \
    template <> struct traits<type> {                                    \
        static void destroy(type *handle) noexcept { destroy_(handle); } \
        static void keep(type *handle) noexcept { keep_(handle); }       \
    }
FERRY_TRAITS_(fy_tensor_t, fy_tensor_destroy, fy_tensor_keep);
FERRY_TRAITS_(fy_stream_t, fy_stream_destroy, fy_stream_keep);
FERRY_TRAITS_(fy_tape_t, fy_tape_destroy, fy_tape_keep);
FERRY_TRAITS_(fy_graph_t, fy_graph_destroy, fy_graph_keep);
FERRY_TRAITS_(fy_download_t, fy_download_destroy, fy_download_keep);
FERRY_TRAITS_(fy_prefetch_t, fy_prefetch_destroy, fy_prefetch_keep);
FERRY_TRAITS_(fy_device_t, fy_device_close, keep_nothing);
FERRY_TRAITS_(fy_pool_t, fy_pool_destroy, keep_nothing);
#undef FERRY_TRAITS_
} // namespace detail

/* A handle with one owner, or none; moved, not copied. */
template <typename T> class handle
{
  public:
    handle() noexcept = default;
    /* Takes over `owned`. */
    explicit handle(T *owned) noexcept : handle_(owned)
    {
        if (owned) detail::traits<T>::keep(owned);
    }
    handle(handle &&other) noexcept : handle_(other.release()) {}
    handle &operator=(handle &&other) noexcept
    {
        if (this != &other) {
            detail::traits<T>::destroy(handle_);
            handle_ = other.release();
        }
        return *this;
    }
    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;
    ~handle() { detail::traits<T>::destroy(handle_); }

    T *get() const noexcept { return handle_; }
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    /* The caller owns the handle. */
    [[nodiscard]] T *release() noexcept { return std::exchange(handle_, nullptr); }

  private:
    T *handle_ = nullptr;
};

using device = handle<fy_device_t>;
using tensor = handle<fy_tensor_t>;
using stream = handle<fy_stream_t>;
using tape = handle<fy_tape_t>;
using graph = handle<fy_graph_t>;
using download = handle<fy_download_t>;
using prefetch = handle<fy_prefetch_t>;
using pool = handle<fy_pool_t>;

namespace detail
{
template <typename T> struct is_handle : std::false_type {
};
template <typename T> struct is_handle<handle<T>> : std::true_type {
};

/* An argument as C takes it. */
template <typename T> auto c(const T &value) noexcept
{
    if constexpr (is_handle<T>::value)
        return value.get();
    else
        return value;
}

template <typename T, typename = void> struct result {
    using type = T; /* a value: double, fy_ticket_t, ... */
};
template <typename T>
struct result<T *, std::void_t<decltype(&traits<std::remove_const_t<T>>::destroy)>> {
    using type = handle<T>;
};
} // namespace detail

/* Calls a C function and returns its last parameter, an out pointer: a handle as an object, else
 * the value. */
template <typename... P, typename... A>
[[nodiscard]] auto call(fy_status_t (*function)(P...), const A &...arguments)
{
    static_assert(sizeof...(A) + 1 == sizeof...(P),
                  "pass every parameter but the last, the out pointer");
    using last = std::tuple_element_t<sizeof...(P) - 1, std::tuple<P...>>;
    std::remove_pointer_t<last> out{};
    check(function(detail::c(arguments)..., &out));
    return typename detail::result<std::remove_pointer_t<last>>::type(out);
}

/* Calls a C function that has no result. */
template <typename... P, typename... A>
void run(fy_status_t (*function)(P...), const A &...arguments)
{
    check(function(detail::c(arguments)...));
}

/* A scope that ends with the C++ scope. Objects made inside stay, because they own their handles;
 * what C functions made without an object is destroyed. */
class scope
{
  public:
    explicit scope(const char *name) : scope_(fy_scope_begin(name)) {}
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
    ~scope() { fy_scope_end(scope_, 0, nullptr); }

  private:
    fy_scope_t scope_;
};

inline device open(const char *spec) { return call(fy_device_open, spec); }

/* FY_DTYPE_F32 of float, and so on; f16 and bf16 have no type in C++17. */
template <typename T> struct dtype_of;
template <> struct dtype_of<float> : std::integral_constant<fy_dtype_t, FY_DTYPE_F32> {
};
template <> struct dtype_of<double> : std::integral_constant<fy_dtype_t, FY_DTYPE_F64> {
};
template <> struct dtype_of<std::int32_t> : std::integral_constant<fy_dtype_t, FY_DTYPE_I32> {
};
template <> struct dtype_of<std::int64_t> : std::integral_constant<fy_dtype_t, FY_DTYPE_I64> {
};
template <> struct dtype_of<std::uint8_t> : std::integral_constant<fy_dtype_t, FY_DTYPE_U8> {
};
template <> struct dtype_of<bool> : std::integral_constant<fy_dtype_t, FY_DTYPE_BOOL> {
};

/* A host tensor of `data`, dense and row-major; borrowed until the last use of the tensor and its
 * views. */
template <typename T> tensor wrap(T *data, std::initializer_list<std::int64_t> dims)
{
    return call(fy_tensor_wrap, fy_device_host(), dtype_of<T>::value, static_cast<int>(dims.size()),
                dims.begin(), static_cast<void *>(data), nullptr, nullptr);
}

inline fy_tensor_info_t info(const tensor &object)
{
    fy_tensor_info_t facts = FY_TENSOR_INFO_INIT;
    check(fy_tensor_query(object.get(), &facts));
    return facts;
}

/* The elements of a host tensor, to be read (T const) or written. Fails also: DTYPE_MISMATCH. */
template <typename T> T *data(const tensor &object)
{
    constexpr fy_dtype_t dtype = dtype_of<std::remove_const_t<T>>::value;
    const fy_dtype_t given = info(object).dtype;
    if (given != dtype) {
        check(fy_error_set(FY_STATUS_DTYPE_MISMATCH, __FILE__, __LINE__,
                           "ferry::data: the tensor is %s, the pointer is to %s",
                           fy_dtype_name(given), fy_dtype_name(dtype)));
        return nullptr;
    }
    return static_cast<T *>(
        call(fy_tensor_map, object, std::is_const_v<T> ? FY_ACCESS_READ : FY_ACCESS_READ_WRITE));
}

/* Blocks; the host tensor of a download. If it fails, the download is unchanged. */
inline tensor wait(download &&request, std::uint64_t timeout_ns = FY_FOREVER)
{
    tensor host = call(fy_download_wait, request, timeout_ns);
    if (host) (void)request.release(); /* freed by the wait */
    return host;
}

/* Blocks; the value of a tensor with one element: a download of its own. */
inline double item(const tensor &object)
{
    download request = call(fy_tensor_download, object, nullptr);
    double value = 0;
    const fy_status_t status = fy_download_wait_f64(request.get(), FY_FOREVER, &value);
    if (status == FY_STATUS_OK) (void)request.release();
    check(status);
    return value;
}

} // namespace ferry

#endif
