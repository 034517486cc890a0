# turnstile_library(NAME [EXPORT set] [PUBLIC libs…] [PRIVATE libs…])
#
# The library turnstile::NAME out of the calling folder: src/**/*.cpp and the public headers in include/.
# A folder that has only headers gives an INTERFACE library. EXPORT: the file of targets that it is installed in, by default the
# one that every find_package(Turnstile) reads.
function(turnstile_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "EXPORT" "SOURCES;PUBLIC;PRIVATE")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/*.cpp")
  set(target turnstile_${name})
  set(headers "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")

  if(sources)
    add_library(${target} ${sources} ${arg_SOURCES})
    target_include_directories(${target} PUBLIC ${headers} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/src")
    target_compile_features(${target} PUBLIC cxx_std_20)
    target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE} $<BUILD_INTERFACE:turnstile_flags>)
    set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${headers})
    target_compile_features(${target} INTERFACE cxx_std_20)
    target_link_libraries(${target} INTERFACE ${arg_PUBLIC})
  endif()

  add_library(turnstile::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  if(NOT arg_EXPORT)
    set(arg_EXPORT TurnstileTargets)
  endif()
  install(TARGETS ${target} EXPORT ${arg_EXPORT})
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/include")
    install(DIRECTORY include/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  endif()
endfunction()
