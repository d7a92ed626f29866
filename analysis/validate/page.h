#pragma once
// validation.html: predicted against measured.

#include <string>
#include <vector>

#include "analysis/validate/validate.h"

namespace moetwin {

/// One file with everything in it, that opens without a network.
std::string validation_page(const std::vector<KindResult>& kinds);

}  // namespace moetwin
