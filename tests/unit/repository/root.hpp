#pragma once
// The tree itself.

#include <filesystem>

/// The folder of the project.
inline const std::filesystem::path root{TURNSTILE_SOURCE_DIR};
