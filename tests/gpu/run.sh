#!/usr/bin/env bash
# The commands for a bare GPU machine, in the project's folder; `pack.py` describes such a machine.
#
#   tests/gpu/run.sh piece N         takes .gpu/N; with the last piece joins all, and checks that CUDA loads
#   tests/gpu/run.sh tests           tests/gpu
#   tests/gpu/run.sh bench PART...   these parts of bench.gpu, as many as are done within LIMIT seconds (560)
#   tests/gpu/run.sh do COMMAND...   any other command: python, pytest, java and Kafka's jars are at hand
#
# Results go into $OUT, or build/gpu; everything else into GPU_HOME (/tmp/gpu).
set -euo pipefail
cd "$(dirname "$0")/../.."
home=${GPU_HOME:-/tmp/gpu}
out=${OUT:-$PWD/build/gpu}

piece() {
    mkdir -p "$home/pieces"
    cp ".gpu/$1/"* "$home/pieces/"
    local missing
    missing=$(cd "$home/pieces" && while read -r _ name; do [ -e "$name" ] || echo "$name"; done < pieces.sha256)
    if [ -n "$missing" ]; then
        echo "piece $1 is there; $(wc -l <<< "$missing") more"
    else
        (cd "$home/pieces" && sha256sum --check --quiet pieces.sha256)
        put_together
        look
    fi
}

put_together() {
    # Python's own xz: the machine may have none.
    cat "$home"/pieces/piece.* | python3 -c "import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode='r|xz').extractall('$home', filter='tar')"
    # A new environment: other packages of the machine's Python must not replace our versions.
    python3 -m venv --clear --without-pip "$home/venv"
    local packages
    packages=$("$home/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    rmdir "$packages" 2>/dev/null || rm -rf "$packages"
    mv "$home/site" "$packages"
    "$home/jre/bin/java" -Xshare:dump >/dev/null 2>&1 || true # else each broker starts some seconds later
    cuda_folders > "$home/cuda-folders"
}

# Prints the folders with CUDA and cuDNN in PyTorch's packages, if they are there.
cuda_folders() {
    python3 - <<'PYTHON' || true
import glob, importlib.util
found = importlib.util.find_spec("nvidia")
folders = found.submodule_search_locations if found else []
print(":".join(sorted(each for folder in folders for each in glob.glob(folder + "/*/lib"))))
PYTHON
}

# The project's folder is copied anew for each call: link the folders outside it again.
at_hand() {
    export PATH=$home/venv/bin:$home/jre/bin:$PATH PYTHONPATH=$PWD JAVA_HOME=$home/jre PYTHONUNBUFFERED=1
    LD_LIBRARY_PATH=$(cat "$home/cuda-folders")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
    mkdir -p .cache/kafka "$out"
    local folder
    for folder in "$home"/kafka/*; do ln -sfn "$folder" ".cache/kafka/$(basename "$folder")"; done
}

look() {
    at_hand
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv || true
    local provider
    provider=$(python -c 'import importlib.util as u; print(u.find_spec("onnxruntime").submodule_search_locations[0])')
    ldd "$provider/capi/libonnxruntime_providers_cuda.so" | grep "not found" || true
    python -m worker profile worker/tools/demo/digits.onnx --seconds 0.2
}

case ${1:-} in
    piece) piece "$2" ;;
    tests) at_hand && python -m pytest -p no:cacheprovider --durations=10 tests/gpu 2>&1 | tee "$out/tests.txt" ;;
    bench)
        shift && at_hand
        python -m bench.gpu --limit "${LIMIT:-560}" --seconds 2 --models "$home/models" --out "$out" --part "$@"
        ;;
    do) shift && at_hand && "$@" ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
