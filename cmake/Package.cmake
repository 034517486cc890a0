# Install and export: find_package(Turnstile) from the prefix gives the same targets as this build.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Turnstile")
configure_package_config_file(cmake/TurnstileConfig.cmake.in "${PROJECT_BINARY_DIR}/TurnstileConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/TurnstileConfigVersion.cmake" COMPATIBILITY SameMinorVersion)

install(EXPORT TurnstileTargets NAMESPACE turnstile:: DESTINATION "${package_dir}")
if(TURNSTILE_HTTP)
  install(EXPORT TurnstileHttpTargets NAMESPACE turnstile:: DESTINATION "${package_dir}")
endif()
install(FILES "${PROJECT_BINARY_DIR}/TurnstileConfig.cmake" "${PROJECT_BINARY_DIR}/TurnstileConfigVersion.cmake"
        DESTINATION "${package_dir}")
install(DIRECTORY migrations DESTINATION "${CMAKE_INSTALL_DATADIR}/turnstile" FILES_MATCHING PATTERN "*.sql")
