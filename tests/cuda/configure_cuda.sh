#!/bin/sh
# SPDX-License-Identifier: MIT
# What configure says about the GPUs to compile for (m4/ddp_cuda.m4): the part that looks for CUDA, alone, with a made-up
# CUDA whose nvcc says what it is told to.
. "${srcdir:-.}/tests/lib/cli.inc"
command -v autoconf >/dev/null || skip "needs autoconf"
compiler=${CC:-cc}
unset NVCC_GENCODE

# fake_nvcc FILE: knows the GPUs in $FAKE_CODES, and warns about native where $FAKE_GPU is no
mkdir -p "$work/cuda/bin" "$work/cuda/include" "$work/cuda/lib64"
cat >"$work/cuda/bin/nvcc" <<'END'
#!/bin/sh
case $* in
*--version*) echo 'Cuda compilation tools, release 13.0, V13.0.88' ;;
*--list-gpu-code*) [ -z "$FAKE_CODES" ] || printf '%s\n' $FAKE_CODES ;;
*=native,*) echo "nvcc fatal   : Unsupported gpu architecture 'native'" >&2; exit 1 ;;
*native*) [ "$FAKE_GPU" = yes ] || echo "nvcc warning : Cannot find valid GPU for '-arch=native', default arch is used" >&2 ;;
esac
END
chmod +x "$work/cuda/bin/nvcc"
include=$work/cuda/include
echo '#define CUDART_VERSION 13000
int cudaGetDeviceCount(int *);' >"$include/cuda_runtime_api.h"
echo 'typedef void *cublasLtHandle_t; int cublasLtCreate(cublasLtHandle_t *);' >"$include/cublasLt.h"
echo '#define NCCL_VERSION_CODE 22809
int ncclGetVersion(int *);' >"$include/nccl.h"
for library in cudart:cudaGetDeviceCount cublasLt:cublasLtCreate nccl:ncclGetVersion; do
    echo "int ${library#*:}(void); int ${library#*:}(void) { return 0; }" >"$work/fake.c"
    $compiler -shared -fPIC -o "$work/cuda/lib64/lib${library%:*}.so" "$work/fake.c" || exit 99
done

mkdir "$work/tree"
cat >"$work/tree/configure.ac" <<END
m4_define([AM_CONDITIONAL], [])
m4_include([$(cd "$here" && pwd)/m4/ddp_cuda.m4])
AC_INIT([gencode], [1])
AC_CONFIG_AUX_DIR([$(cd "$here" && pwd)/build-aux])
AC_PROG_CC
have_cxx=yes
DDP_CHECK_CUDA
echo "gencode is: \$NVCC_GENCODE"
echo "CUDA is: \$cuda_summary"
END
(cd "$work/tree" && autoconf) >"$work/out" 2>&1 || { cat "$work/out"; exit 99; }
cd "$work/tree" || exit 99

# look CODES GPU ARGUMENT...
cat >look <<END
#!/bin/sh
FAKE_CODES=\$1 FAKE_GPU=\$2 CC='$compiler'
export FAKE_CODES FAKE_GPU CC
shift 2
exec ./configure --with-cuda='$work/cuda' "\$@"
END
chmod +x look
hopper='-gencode=arch=compute_90,code=sm_90'
all='sm_75 sm_80 sm_86 sm_90 sm_103'
expect "all" 0 "^gencode is: -gencode=arch=compute_75,code=sm_75 -gencode=arch=compute_80,code=sm_80 $hopper -gencode=arch=compute_90,code=compute_90\$" \
    ./look "$all" no
expect "no list" 1 'error: .*list-gpu-code. names no GPU: set NVCC_GENCODE, as in NVCC_GENCODE=-gencode=' ./look '' no
expect "only old ones" 1 'names no GPU: set NVCC_GENCODE' ./look 'sm_50 sm_60' no
expect "one" 0 "^gencode is: $hopper\$" ./look "$all" no NVCC_GENCODE="$hopper"
expect "none" 1 'error: NVCC_GENCODE is empty: name a GPU' ./look "$all" no NVCC_GENCODE=
expect "blanks" 1 'error: NVCC_GENCODE is empty: name a GPU' ./look "$all" no NVCC_GENCODE='  '
native='error: NVCC_GENCODE asks for the GPU of this machine .*there is none.*NVCC_GENCODE=-gencode='
expect "native, a GPU" 0 '^CUDA is: CUDA 13.0' ./look "$all" yes NVCC_GENCODE=-arch=native
expect "native, no GPU" 1 "$native" ./look "$all" no NVCC_GENCODE=-arch=native
expect "native in words, no GPU" 1 "$native" ./look "$all" no NVCC_GENCODE='-arch native'
expect "native beside, no GPU" 1 "$native" ./look "$all" no NVCC_GENCODE="$hopper" NVCCFLAGS=-arch=native
expect "native in a pair" 1 'nvcc does not compile' ./look "$all" no NVCC_GENCODE='-gencode=arch=native,code=sm_90'
# Where nvcc says nothing, what it asks does.
# shellcheck disable=SC2016  # the made-up program expands it
printf '#!/bin/sh\n[ "$FAKE_GPU" != broken ]\n' >"$work/cuda/bin/__nvcc_device_query"
chmod +x "$work/cuda/bin/__nvcc_device_query"
sed -i '/Cannot find/d' "$work/cuda/bin/nvcc"
expect "native, a GPU that is found" 0 '^CUDA is: CUDA 13.0' ./look "$all" yes NVCC_GENCODE=-arch=native
expect "native, a broken driver" 1 "$native" ./look "$all" broken NVCC_GENCODE=-arch=native
finish
