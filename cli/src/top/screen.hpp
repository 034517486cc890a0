#pragma once
// The lines of `turnstile top`, and its JSON. Pure.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model.hpp"

namespace turnstile::cli::top {

/// What the person at the terminal has chosen.
struct View {
  std::size_t columns = 80;
  std::size_t rows = 24;  ///< 0: as many as needed
  Sort sort = Sort::lag;
  bool by_process = true;
  bool paused = false;
  bool help = false;
  bool keys = true;      ///< whether the last line names the keys
  std::string prompt{};  ///< a question or a result in place of the keys; empty: none
};

/// Lines of at most `columns` columns, and at most `rows` of them.
std::vector<std::string> draw(const Model& model, const View& view);

/// Everything that the model has. `time` is in ISO form.
nlohmann::ordered_json to_json(const Model& model, const std::string& time);

}  // namespace turnstile::cli::top
