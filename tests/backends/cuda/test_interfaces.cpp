// Which network interfaces a value of NCCL_SOCKET_IFNAME selects.
#include <catch2/catch.hpp>

#include "backends/cuda/job/interfaces.h"
#include "core/base/error.h"

using namespace moetwin;
using Catch::Matchers::Contains;
using Names = std::vector<std::string>;

namespace {
const std::vector<NetworkInterface> kNode1 = {
    {"lo", true, true, "127.0.0.1"},        {"eno1", true, false, "10.0.0.1"},
    {"ib0", true, false, "10.1.0.1"},       {"ib1", true, false, "10.1.0.2"},
    {"docker0", true, false, "172.17.0.1"}, {"eno2", false, false, ""}};
const std::vector<NetworkInterface> kNode2 = {{"lo", true, true, "127.0.0.1"},
                                              {"eth0", true, false, "10.0.0.2"}};
}  // namespace

TEST_CASE("prefixes, whole names and exclusion") {
  CHECK(selected_interfaces("ib", kNode1) == Names{"ib0", "ib1"});
  CHECK(selected_interfaces("=ib0", kNode1) == Names{"ib0"});
  CHECK(selected_interfaces("^docker,lo,ib,eno2", kNode1) == Names{"eno1"});
  CHECK(selected_interfaces("", kNode1) == Names{"eno1", "ib0", "ib1"});
  CHECK(selected_interfaces("", {kNode2[0]}).empty());  // one node needs none
}

TEST_CASE("a name that is not there is refused with those that are", "[P160]") {
  CHECK_THROWS_WITH(selected_interfaces("eth9", kNode1),
                    Contains("NCCL_SOCKET_IFNAME=eth9 selects no network interface") &&
                        Contains("eno1 (10.0.0.1)") && Contains("docker0"));
  CHECK_THROWS_WITH(selected_interfaces("=ib", kNode1), Contains("=ib selects no"));
}

TEST_CASE("a list serves nodes whose interfaces have other names", "[P161]") {
  CHECK(selected_interfaces("eno1,eth0", kNode1) == Names{"eno1"});
  CHECK(selected_interfaces("eno1,eth0", kNode2) == Names{"eth0"});
}

TEST_CASE("this machine has its loopback") {
  bool found = false;
  for (const NetworkInterface& i : network_interfaces()) found = found || i.loopback;
  CHECK(found);
}
