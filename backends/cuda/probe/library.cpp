#include "backends/cuda/probe/library.h"

#include <dlfcn.h>

namespace moetwin {

Library::Library(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_) {
      name_ = name;
      return;
    }
    if (const char* error = ::dlerror()) error_ = error;
  }
}

Library::~Library() {
  if (handle_) ::dlclose(handle_);
}

void* Library::symbol(const char* name) const { return handle_ ? ::dlsym(handle_, name) : nullptr; }

}  // namespace moetwin
