/*
 * Errors of PyTorch. An allocator of the whole process must throw: an address of NULL
 * becomes a tensor at 0. The classes are those of the torch in the process, found at run time.
 */
#ifndef UMF_PYTHON_HOOKS_TORCH_ERROR_HPP
#define UMF_PYTHON_HOOKS_TORCH_ERROR_HPP

#include <string>

/* Becomes torch.OutOfMemoryError. */
[[noreturn]] void throw_out_of_memory(const std::string &text);
/* Becomes RuntimeError. */
[[noreturn]] void throw_error(const std::string &text);

#endif
