#pragma once
// A shared library that may or may not be on the machine.

#include <string>

namespace moetwin {

class Library {
 public:
  /// The first of the names that can be loaded.
  explicit Library(std::initializer_list<const char*> names);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& name() const { return name_; }
  /// What the loader said of the last name.
  const std::string& error() const { return error_; }
  /// Null when the library or the function is absent.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;
  void* handle_ = nullptr;
  std::string name_, error_;
};

}  // namespace moetwin
