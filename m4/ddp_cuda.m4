# SPDX-License-Identifier: MIT
#
# DDP_CHECK_CUDA: what the plugin libddp-cuda is built with. Sets have_cuda, cuda_summary, and for make NVCC,
# NVCC_GENCODE, NVCCFLAGS, CUDA_CPPFLAGS, CUDA_LIBS; the conditionals CUDA (the plugin is built) and CUDA_HEADERS
# (CUDA's own headers are there for the simulation of it).

# DDP_CUDA_MISSING(WHAT, ADVICE): asked for and missing is an error, else a reason in the summary.
AC_DEFUN([DDP_CUDA_MISSING], [
  AS_IF([test "x$with_cuda" != xcheck], [AC_MSG_ERROR([--with-cuda was asked for, but $1: $2])])
  AS_IF([test -z "$cuda_missing"], [cuda_missing="$1; $2"])])

# DDP_CUDA_FIND(VARIABLE, FILE PATTERN..., FOLDERS): the first folder that holds a file.
AC_DEFUN([DDP_CUDA_FIND], [
  $1=
  for ddp_dir in $3; do
    for ddp_file in $2; do
      AS_IF([test -z "$$1" && test -e "$ddp_dir/$ddp_file"], [$1=$ddp_dir])
    done
  done])

# DDP_CUDA_LIB(NAME, FOLDER): adds the library to CUDA_LIBS; pip's packages have no NAME.so, only NAME.so.N.
AC_DEFUN([DDP_CUDA_LIB], [
  AS_CASE([" $ddp_cuda_dirs "], [*" $2 "*], [],
    [ddp_cuda_dirs="$ddp_cuda_dirs $2"; ddp_cuda_ldflags="$ddp_cuda_ldflags -L$2 -R$2"])
  AS_IF([test -e "$2/lib$1.so"], [ddp_cuda_ls="$ddp_cuda_ls -l$1"], [
    for ddp_file in "$2"/lib$1.so.*; do ddp_lib=$(basename "$ddp_file"); done
    ddp_cuda_ls="$ddp_cuda_ls -l:$ddp_lib"])])

# DDP_CUDA_TOOLKIT: sets cuda_root, cuda_include, cuda_version (12040 for 12.4).
AC_DEFUN([DDP_CUDA_TOOLKIT], [
  AC_MSG_CHECKING([for CUDA])
  AS_IF([test "x$with_cuda" != xyes && test "x$with_cuda" != xcheck], [ddp_roots=$with_cuda], [
    ddp_roots="$CUDA_HOME $CUDA_PATH /usr/local/cuda"
    ddp_nvcc=$(command -v "${NVCC:-nvcc}" 2>/dev/null) &&
      ddp_roots="$ddp_roots $(dirname "$(dirname "$(readlink -f "$ddp_nvcc")")") $(dirname "$(dirname "$ddp_nvcc")")"
    AS_IF([test -n "$PKG_CONFIG"], [
      for ddp_module in cudart $($PKG_CONFIG --list-all 2>/dev/null | sed -n 's/^\(cudart-@<:@0-9.@:>@*\) .*/\1/p' | sort -rV); do
        ddp_roots="$ddp_roots $($PKG_CONFIG --variable=cudaroot $ddp_module 2>/dev/null)"
      done])])
  cuda_root= cuda_include= cuda_version=0 cuda_old=
  for ddp_root in $ddp_roots; do
    DDP_CUDA_FIND([ddp_include], [cuda_runtime_api.h],
      [$ddp_root/include $ddp_root/targets/$host_cpu-linux/include])
    AS_IF([test -n "$ddp_include" && test -z "$cuda_root"], [
      ddp_version=$(awk '/^# *define +CUDART_VERSION / { print $NF; exit }' "$ddp_include/cuda_runtime_api.h")
      AS_IF([test "${ddp_version:-0}" -ge 12040],
        [cuda_root=$ddp_root cuda_include=$ddp_include cuda_version=$ddp_version],
        [cuda_old="$ddp_root has CUDA $((${ddp_version:-0} / 1000)).$((${ddp_version:-0} % 1000 / 10))"])])
  done
  cuda_words="$((cuda_version / 1000)).$((cuda_version % 1000 / 10))"
  AS_IF([test -n "$cuda_root"], [AC_MSG_RESULT([$cuda_words in $cuda_root])], [AC_MSG_RESULT([no])])])

# DDP_CUDA_PARTS: nvcc, the libraries, NCCL.
AC_DEFUN([DDP_CUDA_PARTS], [
  AS_IF([test -z "$NVCC"], [AC_PATH_PROG([NVCC], [nvcc], [], [$cuda_root/bin$PATH_SEPARATOR$PATH])])
  AS_IF([test -z "$NVCC"], [DDP_CUDA_MISSING([CUDA in $cuda_root has no nvcc], [install CUDA's compiler (cuda-nvcc)])], [
    # It may be another one than the headers are of.
    ddp_nvcc_words=$("$NVCC" --version 2>/dev/null | sed -n 's/.*release \(@<:@0-9@:>@*\.@<:@0-9@:>@*\).*/\1/p')
    AS_IF([expr "x$ddp_nvcc_words" : 'x@<:@0-9@:>@@<:@0-9@:>@*\.' >/dev/null &&
      test $((${ddp_nvcc_words%.*} * 100 + ${ddp_nvcc_words#*.})) -lt 1204],
      [DDP_CUDA_MISSING([$NVCC is of CUDA $ddp_nvcc_words], [install CUDA 12.4 or newer, or set NVCC])])])
  ddp_lib_dirs="$cuda_root/lib64 $cuda_root/lib $cuda_root/targets/$host_cpu-linux/lib $cuda_root/lib/$host_cpu-linux-gnu"
  ddp_cuda_dirs= ddp_cuda_ldflags= ddp_cuda_ls= ddp_nccl_cppflags=
  DDP_CUDA_FIND([cuda_libdir], [libcudart.so libcudart.so.*], [$ddp_lib_dirs])
  AS_IF([test -z "$cuda_libdir"], [DDP_CUDA_MISSING([libcudart is missing in $cuda_root], [install CUDA's runtime (cuda-cudart-dev)])],
    [DDP_CUDA_LIB([cudart], [$cuda_libdir])])
  DDP_CUDA_FIND([cublas_libdir], [libcublasLt.so libcublasLt.so.*], [$ddp_lib_dirs $cuda_root/../cublas/lib])
  AS_IF([test -z "$cublas_libdir"], [DDP_CUDA_MISSING([libcublasLt is missing in $cuda_root], [install cuBLAS (libcublas-dev)])],
    [DDP_CUDA_LIB([cublasLt], [$cublas_libdir])])
  AC_MSG_CHECKING([for NCCL])
  AS_IF([test "x$with_nccl" != xyes && test "x$with_nccl" != xcheck],
    [ddp_nccl_roots="$with_nccl $with_nccl/nccl $with_nccl/nvidia/nccl"],
    [ddp_nccl_roots="$cuda_root $cuda_root/nccl $cuda_root/nvidia/nccl $cuda_root/../nccl /usr/local /usr"])
  nccl_include= nccl_libdir=
  for ddp_root in $ddp_nccl_roots; do
    AS_IF([test -z "$nccl_libdir" && test -f "$ddp_root/include/nccl.h"], [
      DDP_CUDA_FIND([nccl_libdir], [libnccl.so libnccl.so.2],
        [$ddp_root/lib64 $ddp_root/lib $ddp_root/lib/$host_cpu-linux-gnu])
      nccl_include=$ddp_root/include])
  done
  AS_IF([test -z "$nccl_libdir"], [
    AC_MSG_RESULT([no])
    DDP_CUDA_MISSING([NCCL (nccl.h, libnccl) is missing], [install libnccl-dev, or name its folder by --with-nccl=DIR])], [
    nccl_code=$(awk '/^# *define +NCCL_VERSION_CODE / { print $NF; exit }' "$nccl_include/nccl.h")
    nccl_words="$((${nccl_code:-0} / 10000)).$((${nccl_code:-0} % 10000 / 100)).$((${nccl_code:-0} % 100))"
    AC_MSG_RESULT([$nccl_words in $nccl_libdir])
    AS_IF([test "${nccl_code:-0}" -lt 21903], [DDP_CUDA_MISSING([NCCL $nccl_words is too old], [install NCCL 2.19.3 or newer])])
    DDP_CUDA_LIB([nccl], [$nccl_libdir])
    ddp_nccl_cppflags="-isystem $nccl_include"
    AS_CASE([$nccl_include], [/usr/include | "$cuda_include"], [ddp_nccl_cppflags=])])
  AS_IF([test "x${CUDA_CPPFLAGS+set}" != xset], [
    CUDA_CPPFLAGS="-isystem $cuda_include"
    AS_CASE([$cuda_include], [/usr/include], [CUDA_CPPFLAGS=])
    AS_IF([test "$cuda_version" -ge 13000 && test -d "$cuda_include/cccl"], [CUDA_CPPFLAGS="$CUDA_CPPFLAGS -isystem $cuda_include/cccl"])
    CUDA_CPPFLAGS="$CUDA_CPPFLAGS${ddp_nccl_cppflags:+ $ddp_nccl_cppflags}"])
  AS_IF([test "x${CUDA_LIBS+set}" != xset], [CUDA_LIBS="$ddp_cuda_ldflags$ddp_cuda_ls"])])

# DDP_CUDA_GENCODE: sets NVCC_GENCODE. What nvcc takes where it is told nothing, or "native" and finds no GPU, is an old GPU,
# whose code has no products on tensor cores.
AC_DEFUN([DDP_CUDA_GENCODE], [
  ddp_example='-gencode=arch=compute_90,code=sm_90'
  AC_MSG_CHECKING([for the GPUs to compile for])
  AS_IF([test "x${NVCC_GENCODE+set}" != xset], [
    # Every major architecture from 7.5 on runs what is compiled for its first; newer ones take the last one's PTX.
    NVCC_GENCODE= ddp_ptx=
    for ddp_sm in $("$NVCC" --list-gpu-code 2>/dev/null | sed -n 's/^sm_\(75\|@<:@0-9@:>@*0\)$/\1/p' | sort -n); do
      # 11.0 is a module with ARM cores.
      AS_IF([test "$ddp_sm" -lt 75], [], [test "$ddp_sm" -eq 110 && test "$host_cpu" != aarch64], [], [
        NVCC_GENCODE="$NVCC_GENCODE${NVCC_GENCODE:+ }-gencode=arch=compute_$ddp_sm,code=sm_$ddp_sm"
        ddp_ptx="-gencode=arch=compute_$ddp_sm,code=compute_$ddp_sm"])
    done
    NVCC_GENCODE="$NVCC_GENCODE${ddp_ptx:+ $ddp_ptx}"
    AC_MSG_RESULT([${NVCC_GENCODE:-none}])
    AS_IF([test -z "$NVCC_GENCODE"],
      [DDP_CUDA_MISSING(["$NVCC --list-gpu-code" names no GPU], [set NVCC_GENCODE, as in NVCC_GENCODE=$ddp_example])])], [
    AC_MSG_RESULT([$NVCC_GENCODE])
    AS_CASE([$NVCC_GENCODE], [*@<:@!\ @:>@*], [],
      [AC_MSG_ERROR([NVCC_GENCODE is empty: name a GPU, as in NVCC_GENCODE=$ddp_example, or unset it for all that nvcc knows])])])
  AS_CASE([" $NVCC_GENCODE $NVCCFLAGS "], [*native*], [
    AC_MSG_CHECKING([for a GPU, for "native"])
    echo 'static __global__ void f(int *x) { *x = 1; }' >conftest.cu
    # nvcc only warns, and finds out by this program.
    ddp_query=$(dirname "$(command -v "$NVCC")")/__nvcc_device_query
    AS_IF(["$NVCC" $NVCC_GENCODE $NVCCFLAGS --dryrun -c conftest.cu 2>&1 | grep 'Cannot find valid GPU' >&AS_MESSAGE_LOG_FD ||
      { test -x "$ddp_query" && ! "$ddp_query" >&AS_MESSAGE_LOG_FD 2>&1; }], [
      rm -f conftest.cu
      AC_MSG_RESULT([no])
      AC_MSG_ERROR([NVCC_GENCODE asks for the GPU of this machine ("native"), and there is none, or the NVIDIA driver does not work (try nvidia-smi): name the GPU that the program is for, as in NVCC_GENCODE=$ddp_example])])
    rm -f conftest.cu
    AC_MSG_RESULT([yes])])])

# DDP_CUDA_TRY: that the parts do link and compile.
AC_DEFUN([DDP_CUDA_TRY], [
  AC_MSG_CHECKING([whether CUDA, cuBLAS and NCCL link])
  ddp_saved_CPPFLAGS=$CPPFLAGS ddp_saved_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
  # -R is libtool's.
  LIBS="$(echo " $CUDA_LIBS" | sed 's/ -R *@<:@^ @:>@*//g') $LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime_api.h>
      #include <cublasLt.h>
      #include <nccl.h>]],
      [[int n; cublasLtHandle_t h; return cudaGetDeviceCount(&n) || cublasLtCreate(&h) || ncclGetVersion(&n);]])],
    [AC_MSG_RESULT([yes])], [
    AC_MSG_RESULT([no])
    DDP_CUDA_MISSING([a program with CUDA, cuBLAS and NCCL does not link], [see config.log])])
  CPPFLAGS=$ddp_saved_CPPFLAGS LIBS=$ddp_saved_LIBS
  DDP_CUDA_GENCODE
  AC_MSG_CHECKING([whether $NVCC works])
  echo 'static __global__ void f(int *x) { *x = 1; } extern "C" void g(int *x) { f<<<1, 1>>>(x); }' >conftest.cu
  AS_IF([AC_RUN_LOG(["$NVCC" $NVCC_GENCODE $NVCCFLAGS -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD])],
    [AC_MSG_RESULT([yes])], [
    AC_MSG_RESULT([no])
    DDP_CUDA_MISSING([$NVCC does not compile], [see config.log; NVCC_GENCODE and NVCCFLAGS (-ccbin=COMPILER) may be set])])
  rm -f conftest.cu conftest.o])

AC_DEFUN([DDP_CHECK_CUDA], [
  AC_REQUIRE([AC_CANONICAL_HOST])
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [build the plugin for NVIDIA GPUs with CUDA 12.4 or newer, cuBLAS and NCCL (default: when found)])],
    [], [with_cuda=check])
  AC_ARG_WITH([nccl],
    [AS_HELP_STRING([--with-nccl=DIR], [where NCCL is, if not beside CUDA; nvidia/nccl of a Python environment will do])],
    [], [with_nccl=check])
  AC_ARG_VAR([NVCC], [CUDA's compiler])
  AC_ARG_VAR([NVCC_GENCODE], [GPU architectures to compile for, as nvcc's options: "-arch=native" for those of this machine (default: every major one)])
  AC_ARG_VAR([NVCCFLAGS], [further options of nvcc])
  AC_ARG_VAR([CUDA_CPPFLAGS], [preprocessor options for CUDA's and NCCL's headers])
  AC_ARG_VAR([CUDA_LIBS], [linker options for cudart, cublasLt and nccl])
  have_cuda=no cuda_missing= cuda_include=
  AS_IF([test "x$with_nccl" = xno], [with_nccl=check])
  AS_IF([test "x$with_cuda" = xno], [cuda_missing='as asked for'], [
    DDP_CUDA_TOOLKIT
    AS_IF([test -n "$cuda_root"], [DDP_CUDA_PARTS],
      [test -n "$cuda_old"], [DDP_CUDA_MISSING([$cuda_old], [install CUDA 12.4 or newer])],
      [test "x$with_cuda" != xcheck && test "x$with_cuda" != xyes],
        [DDP_CUDA_MISSING([there is no CUDA in $with_cuda], [name the folder that has CUDA's include and lib])],
      [DDP_CUDA_MISSING([CUDA is not found], [install CUDA 12.4 or newer, or name its folder by --with-cuda=DIR])])
    AS_IF([test "$have_cxx" = no], [DDP_CUDA_MISSING([nvcc needs a C++ compiler], [install g++])])
    AS_IF([test -z "$cuda_missing"], [DDP_CUDA_TRY])
    AS_IF([test -z "$cuda_missing"], [
      have_cuda=yes
      cuda_summary="CUDA $cuda_words, NCCL $nccl_words"])])
  AS_IF([test "$have_cuda" = no], [cuda_summary="no ($cuda_missing)"])
  AC_SUBST([cuda_summary])
  AM_CONDITIONAL([CUDA], [test "$have_cuda" = yes])
  # Without NCCL's header too the simulation takes its own.
  AM_CONDITIONAL([CUDA_HEADERS], [test "$have_cuda" = yes])])

# DDP_CHECK_CUDNN: whether the plugin knows cuDNN, after DDP_CHECK_CUDA. Its header is enough: the library is loaded when
# the plugin runs, found where it lay at configure time or where the loader looks. Sets CUDNN_CPPFLAGS, CUDNN_LDFLAGS,
# cudnn_summary and the conditional CUDNN.
AC_DEFUN([DDP_CHECK_CUDNN], [
  AC_ARG_WITH([cudnn],
    [AS_HELP_STRING([--with-cudnn@<:@=DIR@:>@], [convolution through cuDNN 9 where its library is present (default: when its header is found); nvidia/cudnn of a Python environment will do as DIR])],
    [], [with_cudnn=check])
  cudnn_include= cudnn_libdir= cudnn_missing= CUDNN_CPPFLAGS= CUDNN_LDFLAGS=
  AS_IF([test "x$with_cudnn" = xno], [cudnn_missing='as asked for'],
    [test "$have_cuda" = no], [cudnn_missing='no CUDA'], [
    AC_MSG_CHECKING([for cuDNN])
    ddp_cudnn_roots="$cuda_root $cuda_root/cudnn $cuda_root/nvidia/cudnn $cuda_root/../cudnn /usr/local /usr"
    AS_IF([test "x$with_cudnn" != xyes && test "x$with_cudnn" != xcheck],
      [ddp_cudnn_roots="$with_cudnn $with_cudnn/cudnn $with_cudnn/nvidia/cudnn"])
    cudnn_code=0
    for ddp_root in $ddp_cudnn_roots; do
      for ddp_dir in "$ddp_root/include" "$ddp_root/include/$host_cpu-linux-gnu"; do
        AS_IF([test -z "$cudnn_include" && test -f "$ddp_dir/cudnn.h" && test -f "$ddp_dir/cudnn_version.h"], [
          ddp_file=$ddp_dir/cudnn_version.h
          AS_IF([test -f "$ddp_dir/cudnn_version_v9.h"], [ddp_file=$ddp_dir/cudnn_version_v9.h])
          cudnn_code=$(awk '/^# *define +CUDNN_MAJOR / { a = $NF } /^# *define +CUDNN_MINOR / { b = $NF } /^# *define +CUDNN_PATCHLEVEL / { c = $NF }
            END { print a * 10000 + b * 100 + c }' "$ddp_file")
          cudnn_include=$ddp_dir
          DDP_CUDA_FIND([cudnn_libdir], [libcudnn.so.9], [$ddp_root/lib64 $ddp_root/lib $ddp_root/lib/$host_cpu-linux-gnu])])
      done
    done
    AS_IF([test -z "$cudnn_include"], [cudnn_missing='cudnn.h is not found'],
      [test "$cudnn_code" -lt 90000], [cudnn_missing='its version is below 9'])
    cudnn_words="$((cudnn_code / 10000)).$((cudnn_code / 100 % 100)).$((cudnn_code % 100))"
    AS_IF([test -n "$cudnn_missing"], [AC_MSG_RESULT([no, $cudnn_missing])], [
      AC_MSG_RESULT([$cudnn_words in $cudnn_include])
      CUDNN_CPPFLAGS="-DDDP_WITH_CUDNN"
      AS_CASE([$cudnn_include], [/usr/include | "$cuda_include"], [], [CUDNN_CPPFLAGS="$CUDNN_CPPFLAGS -isystem $cudnn_include"])
      AS_CASE([$cudnn_libdir], ['' | /usr/lib | "/usr/lib/$host_cpu-linux-gnu"], [], [CUDNN_LDFLAGS="-R$cudnn_libdir"])])
    AS_IF([test -n "$cudnn_missing" && test "x$with_cudnn" != xcheck],
      [AC_MSG_ERROR([--with-cudnn was asked for, but $cudnn_missing: install cuDNN 9 (libcudnn9-dev), or name its folder])])])
  AS_IF([test -n "$cudnn_missing"], [cudnn_summary="no ($cudnn_missing)"],
    [test -n "$cudnn_libdir"], [cudnn_summary="cuDNN $cudnn_words, loaded when it is present"],
    [cudnn_summary="cuDNN $cudnn_words, of which only the header is here"])
  AC_SUBST([CUDNN_CPPFLAGS])
  AC_SUBST([CUDNN_LDFLAGS])
  AM_CONDITIONAL([CUDNN], [test "$have_cuda" = yes && test -z "$cudnn_missing"])])
