#include "analysis/validate/known_models.h"

#include "analysis/validate/published.h"

namespace moetwin {
namespace {

// Longer names before their beginnings.
constexpr KnownModel kModels[] = {
    {"llama3.1-405b", 126, 16384, 128, 8, 53248, 128256},
    {"llama3.1_405b", 126, 16384, 128, 8, 53248, 128256},
    {"llama3-70b", 80, 8192, 64, 8, 28672, 128256},
    {"llama3_70b", 80, 8192, 64, 8, 28672, 128256},
    {"llama3-8b", 32, 4096, 32, 8, 14336, 128256},
    {"llama3_8b", 32, 4096, 32, 8, 14336, 128256},
    {"llama2-70b", 80, 8192, 64, 8, 28672, 32000},
    {"llama-2-70b", 80, 8192, 64, 8, 28672, 32000},
    {"llama2-13b", 40, 5120, 40, 40, 13824, 32000},
    {"llama-2-13b", 40, 5120, 40, 40, 13824, 32000},
    {"llama2-7b", 32, 4096, 32, 32, 11008, 32000},
    {"llama-2-7b", 32, 4096, 32, 32, 11008, 32000},
    {"tinyllama-1.1b", 22, 2048, 32, 4, 5632, 32000},
    {"internlm-7b", 32, 4096, 32, 32, 11008, 103168},
    {"internlm 7b", 32, 4096, 32, 32, 11008, 103168},
    {"internlm 20b", 60, 5120, 40, 40, 13824, 103168},
    {"qwen3-32b", 64, 5120, 64, 8, 25600, 151936},
    {"qwen3-30b-a3b", 48, 2048, 32, 4, 0, 151936},
    {"qwen3_30b_a3b", 48, 2048, 32, 4, 0, 151936},
    {"qwen3-235b-a22b", 94, 4096, 64, 4, 0, 151936},
    {"qwen3_235b_a22b", 94, 4096, 64, 4, 0, 151936},
    {"qwen2.5-7b", 28, 3584, 28, 4, 18944, 152064},
    {"qwen2-57b-a14b", 28, 3584, 28, 4, 0, 151936},
    {"mixtral 8x7b", 32, 4096, 32, 8, 0, 32000},
    {"mixtral 8x22b", 56, 6144, 48, 8, 0, 32768},
    {"smollm-1.7b", 24, 2048, 32, 32, 8192, 49152},
    {"llama-7b", 32, 4096, 32, 32, 11008, 32000},
    // nanotron's scaling benchmarks (scripts/scaling_benchmarks.py): as many key heads as heads.
    {"llama-like 1.34b", 16, 2048, 32, 32, 8192, 131072},
    {"llama-like 3.57b", 28, 3072, 32, 32, 8192, 131072},
    {"llama-like 8.86b", 32, 4096, 32, 32, 14336, 131072},
    {"llama-like 80.0b", 80, 8192, 64, 64, 28672, 131072},
    // Korthikanti et al. 2022, table 3.
    {"gpt 22b", 48, 6144, 64, 64, 24576, 51200},
    {"gpt 175b", 96, 12288, 96, 96, 49152, 51200},
    {"gpt 530b", 105, 20480, 128, 128, 81920, 51200},
    {"gpt 1t", 128, 25600, 160, 160, 102400, 51200},
    {"gpt-2 1.5b", 48, 1600, 25, 25, 6400, 50257},
    {"deepseekv3", 61, 7168, 128, 128, 18432, 129280},
    {"deepseek-v3", 61, 7168, 128, 128, 18432, 129280},
};

}  // namespace

const KnownModel* known_model(const std::string& name) {
  const std::string lower = lower_case(name);
  for (const KnownModel& model : kModels)
    if (lower.compare(0, std::string(model.name).size(), model.name) == 0) return &model;
  return nullptr;
}

}  // namespace moetwin
