# find_package(saker) gives the targets saker::saker (shared) and saker::saker_static.
get_filename_component(_saker_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET saker::saker)
  add_library(saker::saker SHARED IMPORTED)
  set_target_properties(saker::saker PROPERTIES
    IMPORTED_LOCATION "${_saker_prefix}/lib/libsaker.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_saker_prefix}/include")
  add_library(saker::saker_static STATIC IMPORTED)
  set_target_properties(saker::saker_static PROPERTIES
    IMPORTED_LOCATION "${_saker_prefix}/lib/libsaker.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES C
    INTERFACE_INCLUDE_DIRECTORIES "${_saker_prefix}/include"
    INTERFACE_LINK_LIBRARIES "pthread;dl;m")
endif()
unset(_saker_prefix)
