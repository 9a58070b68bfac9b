# SPDX-License-Identifier: Apache-2.0
# Stands in for CMake's module of this name. When ggml/src includes it, the CPU backend variants of
# TARN_CPU_VARIANTS are made at the end of that folder with ggml's own function: GGML_CPU_ALL_VARIANTS
# would make fourteen.
include(${CMAKE_ROOT}/Modules/CheckCXXCompilerFlag.cmake)

macro(tarn_add_cpu_variants)
  include(${CMAKE_CURRENT_SOURCE_DIR}/ggml-cpu/CMakeLists.txt)
  set(tarn_haswell SSE42 AVX F16C FMA AVX2 BMI2)
  set(tarn_skylakex ${tarn_haswell} AVX512)
  set(tarn_zen4 ${tarn_skylakex} AVX512_VBMI AVX512_VNNI AVX512_BF16)
  foreach(variant ${TARN_CPU_VARIANTS})
    ggml_add_cpu_backend_variant(${variant} ${tarn_${variant}})
  endforeach()
endmacro()

if(CMAKE_CURRENT_SOURCE_DIR STREQUAL "${LLAMA_SOURCE}/ggml/src")
  cmake_language(DEFER CALL tarn_add_cpu_variants)
endif()
