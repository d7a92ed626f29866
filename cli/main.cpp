#include <iostream>

#include "cli/program.h"

int main(int argc, char** argv) {
  return moetwin::run_program(std::vector<std::string>(argv + 1, argv + argc),
                              {std::cout, std::cerr});
}
