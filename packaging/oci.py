#!/usr/bin/env python3
"""A container image with nothing but lighty, without a container engine or a registry:

    oci.py BINARY IMAGE.tar [--notices FILE] [--ca-bundle FILE]

The archive is an OCI layout that `podman load` and `docker load` read, too. It has one layer: the
binary, packaging/container.conf, a user, and the directories that the server writes to. A binary
that is not static brings the libraries of this machine along. The server runs as the user 65532 on
port 8080. The same files and SOURCE_DATE_EPOCH make the same image.
"""
import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
USER = 65532
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
CREATED = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
PID_FILE = "/run/lighty/lighty.pid"


class Layer:
    """Files of the image; directories above them are made as needed."""

    def __init__(self):
        self.bytes = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.bytes, mode="w", format=tarfile.PAX_FORMAT)
        self.made = set()

    def directory(self, path, mode=0o755, user=0):
        above = str(Path(path).parent)
        if above != "." and above not in self.made:
            self.directory(above)
        self.made.add(path)
        self.add(path, tarfile.DIRTYPE, mode, b"", user)

    def file(self, path, content, mode=0o644):
        above = str(Path(path).parent)
        if above not in self.made:
            self.directory(above)
        self.add(path, tarfile.REGTYPE, mode, content, 0)

    def add(self, path, kind, mode, content, user):
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.uid, entry.gid = kind, mode, user, user
        entry.mtime, entry.size = EPOCH, len(content)
        self.tar.addfile(entry, io.BytesIO(content))

    def finish(self):
        self.tar.close()
        return self.bytes.getvalue()


def libraries(binary):
    """The loader and the libraries of a dynamic binary; none of a static one."""
    elf = subprocess.run(["readelf", "-ld", binary], check=True, stdout=subprocess.PIPE, text=True).stdout
    if "(NEEDED)" not in elf:
        return []
    listed = subprocess.run(["ldd", binary], check=True, stdout=subprocess.PIPE, text=True).stdout
    return sorted(set(re.findall(r"(/\S+) \(0x", listed)))


def layer(arguments):
    made = Layer()
    made.file("etc/passwd", f"root:x:0:0:root:/:/none\nlighty:x:{USER}:{USER}:lighty:/var/lib/lighty:/none\n".encode())
    made.file("etc/group", f"root:x:0:\nlighty:x:{USER}:\n".encode())
    made.file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    made.file("etc/lighty/lighty.conf", (TREE / "packaging/container.conf").read_bytes())
    if arguments.ca_bundle:
        made.file("etc/ssl/certs/ca-certificates.crt", arguments.ca_bundle.read_bytes())
    made.file("usr/sbin/lighty", arguments.binary.read_bytes(), 0o755)
    for path in libraries(arguments.binary):
        made.file(path.lstrip("/"), Path(path).read_bytes(), 0o755)
    if arguments.notices:
        made.file("usr/share/doc/lighty/third-party.txt", arguments.notices.read_bytes())
    made.file("usr/share/doc/lighty/LICENSE", (TREE / "LICENSE").read_bytes())
    made.directory("srv/www")
    for path in ("run/lighty", "var/cache/lighty", "var/lib/lighty"):
        made.directory(path, 0o755, USER)
    for path in ("tmp", "var/tmp"):
        made.directory(path, 0o1777)
    return made.finish()


def configuration(version, architecture, diff):
    second = 10**9
    return {
        "created": CREATED,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "ExposedPorts": {"8080/tcp": {}},
            "Env": ["PATH=/usr/sbin:/usr/bin"],
            "Entrypoint": ["/usr/sbin/lighty"],
            "Cmd": ["-f", "/etc/lighty/lighty.conf"],
            # INT finishes the responses under way.
            "StopSignal": "SIGINT",
            # Docker and podman run it; for the OCI specification it is one more field.
            "Healthcheck": {
                "Test": ["CMD", "/usr/sbin/lighty", "ctl", "status", "--pid-file", PID_FILE],
                "Interval": 10 * second, "Timeout": 5 * second, "StartPeriod": 5 * second, "Retries": 3,
            },
            "Labels": labels(version),
        },
        "rootfs": {"type": "layers", "diff_ids": [diff]},
        "history": [{"created": CREATED, "created_by": "packaging/oci.py"}],
    }


def labels(version):
    return {
        "org.opencontainers.image.title": "lighty",
        "org.opencontainers.image.description": "The lighty web server",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "BSD-3-Clause",
    }


def digest(content):
    return hashlib.sha256(content).hexdigest()


def machine(binary):
    header = subprocess.run(["readelf", "-h", binary], check=True, stdout=subprocess.PIPE, text=True).stdout
    name = re.search(r"Machine:\s+(.*)", header)[1]
    return "x86_64" if "X86-64" in name else "aarch64" if "AArch64" in name else name


def image(arguments):
    """{name in the archive: content}"""
    version = re.search(r'^version = "([^"]+)"', (TREE / "Cargo.toml").read_text(), re.M)[1]
    architecture = ARCHITECTURES.get(machine(arguments.binary), "unknown")
    plain = layer(arguments)
    packed = gzip.compress(plain, 9, mtime=0)

    def text(value):
        return json.dumps(value, indent=1, sort_keys=True).encode()

    config = text(configuration(version, architecture, f"sha256:{digest(plain)}"))
    kind = "application/vnd.oci.image"

    def descriptor(media, content, **more):
        return {"mediaType": f"{kind}.{media}", "digest": f"sha256:{digest(content)}", "size": len(content), **more}

    manifest = text({
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "config": descriptor("config.v1+json", config),
        "layers": [descriptor("layer.v1.tar+gzip", packed)],
        "annotations": labels(version),
    })
    index = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.index.v1+json",
        "manifests": [descriptor("manifest.v1+json", manifest,
                                 platform={"architecture": architecture, "os": "linux"},
                                 annotations={"org.opencontainers.image.ref.name": version,
                                              "io.containerd.image.name": f"docker.io/library/lighty:{version}"})],
    }
    blobs = {f"blobs/sha256/{digest(blob)}": blob for blob in (config, packed, manifest)}
    # Of engines that do not know the layout.
    older = [{"Config": f"blobs/sha256/{digest(config)}", "RepoTags": [f"lighty:{version}"],
              "Layers": [f"blobs/sha256/{digest(packed)}"]}]
    return {"oci-layout": text({"imageLayoutVersion": "1.0.0"}), "index.json": text(index),
            "manifest.json": text(older), **dict(sorted(blobs.items()))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--notices", type=Path)
    parser.add_argument("--ca-bundle", type=Path)
    arguments = parser.parse_args()
    archive = Layer()
    for name, content in image(arguments).items():
        archive.file(name, content) if "/" in name else archive.add(name, tarfile.REGTYPE, 0o644, content, 0)
    arguments.archive.write_bytes(archive.finish())
    print(arguments.archive)


if __name__ == "__main__":
    main()
