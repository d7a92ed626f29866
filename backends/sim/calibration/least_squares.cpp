#include "backends/sim/calibration/least_squares.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

namespace moetwin {
namespace {

constexpr int kRounds = 200;

class Fit {
 public:
  Fit(const Residuals& residuals, const std::vector<double>& start, double outlier, double pull)
      : residuals_(residuals), start_(logs(start)), outlier_(outlier), pull_(pull) {}

  std::vector<double> run() {
    Eigen::VectorXd at = start_;
    Eigen::VectorXd r = residuals(at);
    double damping = 1e-3;
    for (int round = 0; round < kRounds && damping < 1e9; ++round) {
      const Eigen::MatrixXd j = derivatives(at, r);
      const Eigen::VectorXd weights = weights_of(r);
      const Eigen::MatrixXd jw = j.transpose() * weights.asDiagonal();
      Eigen::MatrixXd normal = jw * j;
      const double before = cost(r);
      normal.diagonal().array() += damping * (normal.diagonal().array() + 1e-9);
      const Eigen::VectorXd step = normal.ldlt().solve(-jw * r);
      const Eigen::VectorXd next = at + step.cwiseMax(-2).cwiseMin(2);
      const Eigen::VectorXd r_next = residuals(next);
      if (cost(r_next) < before) {
        const double moved = (next - at).cwiseAbs().maxCoeff();
        at = next;
        r = r_next;
        damping = std::max(1e-12, damping / 5);
        if (moved < 1e-10) break;
      } else {
        damping *= 4;
      }
    }
    std::vector<double> values;
    for (const double log : at) values.push_back(std::exp(log));
    return values;
  }

 private:
  static Eigen::VectorXd logs(const std::vector<double>& values) {
    Eigen::VectorXd result(static_cast<Eigen::Index>(values.size()));
    for (size_t i = 0; i < values.size(); ++i)
      result[static_cast<Eigen::Index>(i)] = std::log(values[i]);
    return result;
  }

  /// The model's, then the pulls.
  Eigen::VectorXd residuals(const Eigen::VectorXd& at) const {
    std::vector<double> values;
    for (const double log : at) values.push_back(std::exp(log));
    const std::vector<double> own = residuals_(values);
    const auto n = static_cast<Eigen::Index>(own.size());
    Eigen::VectorXd all(n + at.size());
    for (size_t i = 0; i < own.size(); ++i) all[static_cast<Eigen::Index>(i)] = own[i];
    all.tail(at.size()) = pull_ * (at - start_);
    return all;
  }

  Eigen::MatrixXd derivatives(const Eigen::VectorXd& at, const Eigen::VectorXd& r) const {
    Eigen::MatrixXd j(r.size(), at.size());
    constexpr double kStep = 1e-6;
    for (Eigen::Index p = 0; p < at.size(); ++p) {
      Eigen::VectorXd beside = at;
      beside[p] += kStep;
      j.col(p) = (residuals(beside) - r) / kStep;
    }
    return j;
  }

  Eigen::VectorXd weights_of(const Eigen::VectorXd& r) const {
    return r.unaryExpr([this](double x) { return std::min(1.0, outlier_ / std::abs(x)); });
  }
  double cost(const Eigen::VectorXd& r) const {
    double sum = 0;
    for (const double x : r) {
      const double size = std::abs(x);
      sum += size <= outlier_ ? size * size : outlier_ * (2 * size - outlier_);
    }
    return sum;
  }

  const Residuals& residuals_;
  const Eigen::VectorXd start_;
  const double outlier_, pull_;
};

}  // namespace

std::vector<double> fit_positive(const Residuals& residuals, const std::vector<double>& start,
                                 double outlier, double pull) {
  if (start.empty()) return {};
  return Fit(residuals, start, outlier, pull).run();
}

Line fit_line(const std::vector<double>& x, const std::vector<double>& y) {
  // Minimises sum ((c + s x - y) / y)^2 with weights w = 1 / y^2.
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double weight = 1 / (y[i] * y[i]);
    w += weight, wx += weight * x[i], wy += weight * y[i];
    wxx += weight * x[i] * x[i], wxy += weight * x[i] * y[i];
  }
  const double determinant = w * wxx - wx * wx;
  Line line;
  if (x.size() > 1 && determinant > 1e-12 * w * wxx) {
    line.slope = (w * wxy - wx * wy) / determinant;
    line.constant = (wxx * wy - wx * wxy) / determinant;
  }
  if (line.constant < 0 || line.slope <= 0 || x.size() < 2) {
    if (x.empty()) return {};
    if (line.slope < 0) return {wy / w, 0};
    return {0, wxx > 0 ? wxy / wxx : 0};
  }
  return line;
}

}  // namespace moetwin
