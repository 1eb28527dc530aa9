#!/bin/sh
# An AArch64 device without one: Debian's qemu, a cross compiler, and TVM's runtime for AArch64.
#
#     sh tests/live/emulated.sh [FOLDER]
#
# prepares FOLDER (400 MB, a minute), whose 'python' is one of AArch64, then runs what
# docs/how-to/boards.md shows: tune, lose the device, go on, ingest, validate. It needs Debian 12 or
# later, this toolkit in the Python that 'python' is, and root once, to install packages.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-build/aarch64}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

for tool in qemu-aarch64 aarch64-linux-gnu-g++ mmdebstrap; do
  if ! command -v "$tool" > /dev/null; then
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends qemu-user g++-aarch64-linux-gnu mmdebstrap
    break
  fi
done

if [ ! -x "$folder/python" ]; then
  rm -rf "$folder/root" "$folder/site"
  . /etc/os-release
  mmdebstrap --quiet --variant=extract --architectures=arm64 \
    --include=python3-minimal,libpython3-stdlib,libstdc++6 "$VERSION_CODENAME" "$folder/root"
  found=$(basename "$(ls "$folder"/root/usr/bin/python3.*)")
  version() { python -c "from importlib.metadata import version; print(version('$1'))"; }
  python -m pip install --quiet --no-deps --only-binary :all: --target "$folder/site" \
    --python-version "${found#python}" --platform manylinux_2_28_aarch64 \
    --platform manylinux_2_27_aarch64 --platform manylinux_2_17_aarch64 \
    --platform manylinux2014_aarch64 "apache-tvm==$(version apache-tvm)" \
    "apache-tvm-ffi==$(version apache-tvm-ffi)" numpy ml_dtypes typing_extensions psutil \
    cloudpickle tornado
  cat > "$folder/python.new" << END
#!/bin/sh
# TVM's server starts its workers by the name that this interpreter has: this file.
here=\$(dirname "\$(readlink -f "\$0")")
export PYTHONHOME="\$here/root/usr" PYTHONPATH="\$here/site" TVM_USE_RUNTIME_LIB=1
exec qemu-aarch64 -L "\$here/root" -0 "\$here/python" "\$here/root/usr/bin/$found" "\$@"
END
  chmod +x "$folder/python.new"
  mv "$folder/python.new" "$folder/python"
fi

cd "$here"
EMULATED_AARCH64="$folder" python -m pytest -q -p no:randomly tests/live/test_emulated.py
