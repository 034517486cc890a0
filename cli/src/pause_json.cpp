#include "pause_json.hpp"

namespace turnstile::cli {

Json to_json(const ports::Pause& pause) {
  return {{"topic", pause.part.topic},
          {"partition", pause.part.partition ? Json(*pause.part.partition) : Json(nullptr)},
          {"key", content(pause.part.key)},
          {"breaker_of", pause.part.breaker_of.empty() ? Json(nullptr) : Json(pause.part.breaker_of)},
          {"since", iso(pause.since)},
          {"until", pause.until ? Json(iso(*pause.until)) : Json(nullptr)},
          {"by", pause.by},
          {"why", pause.why}};
}

}  // namespace turnstile::cli
