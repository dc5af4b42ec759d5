# Read by CMake when it comes to llama.cpp inside llama-cpp-python (CMAKE_PROJECT_llama.cpp_INCLUDE).
#
# The wrapper switches llama.cpp's `common` library on, which only its command-line tools use, and no option of the
# wrapper's undoes that. A plain variable shadows the cached one. It more than halves the time to compile.
set(LLAMA_BUILD_COMMON OFF)
