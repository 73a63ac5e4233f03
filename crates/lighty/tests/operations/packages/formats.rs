//! The files of each format, and that the same files make the same package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lighty_testkit::real::find_optional;
use lighty_testkit::server::binary;
use serde_json::Value;

use super::{empty_directory, packaging, run};

/// Time of the packages' files.
const EPOCH: &str = "1700000000";

/// Binary of the packages: small, and linked with the C library.
const PAYLOAD: &str = "/bin/true";

/// Writes notices, copyright, licence and bill of materials. `None` where Python or cargo are
/// missing.
fn supply(directory: &Path, options: &[&str]) -> Option<PathBuf> {
    find_optional(&["python3"])?;
    find_optional(&["cargo"])?;
    fs::create_dir_all(directory).expect("a directory");
    for document in ["sbom", "notices", "copyright", "licence"] {
        let mut command = Command::new(packaging("supply.py"));
        let text = run(command.arg(document).args(options).env("SOURCE_DATE_EPOCH", EPOCH));
        fs::write(directory.join(document), text).expect("written");
    }
    Some(directory.to_owned())
}

/// Lays out the files of a package.
fn root(place: &Path, supply: &Path, package: &str) -> PathBuf {
    let root = place.join("root");
    run(Command::new(packaging("root.sh"))
        .args([PAYLOAD.as_ref(), binary(env!("CARGO_BIN_EXE_lighty")).as_path(), supply, &root])
        .arg(package)
        .env("SOURCE_DATE_EPOCH", EPOCH));
    root
}

/// Packs with `deb.sh` or `rpm.sh`. Returns the package's path.
fn packed(script: &str, place: &Path, supply: &Path, package: &str) -> PathBuf {
    let root = root(place, supply, package);
    let mut command = Command::new(packaging(script));
    command.args([root.as_path(), supply]).arg(package).arg(place).env("SOURCE_DATE_EPOCH", EPOCH);
    PathBuf::from(run(&mut command).trim())
}

fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files that every package has.
const FILES: &[&str] = &[
    "/etc/lighty/conf.d/example.conf",
    "/etc/lighty/lighty.conf",
    "/etc/logrotate.d/lighty",
    "/usr/lib/systemd/system/lighty.service",
    "/usr/lib/systemd/system/lighty.socket",
    "/usr/lib/systemd/system/lighty@.service",
    "/usr/lib/sysusers.d/lighty.conf",
    "/usr/lib/tmpfiles.d/lighty.conf",
    "/usr/libexec/lighty/after-upgrade",
    "/usr/sbin/lighty",
    "/usr/share/bash-completion/completions/lighty",
    "/usr/share/fish/vendor_completions.d/lighty.fish",
    "/usr/share/lighty/drop-ins/static.conf",
    "/usr/share/man/man5/lighty.conf.5.gz",
    "/usr/share/man/man8/lighty.8.gz",
];

#[test]
fn debian_package_is_complete_and_the_same_each_time() {
    let (Some(dpkg), Some(_)) = (find_optional(&["dpkg-deb"]), find_optional(&["readelf"])) else {
        return;
    };
    let directory = empty_directory("deb");
    let Some(supply) = supply(&directory.join("supply"), &[]) else { return };
    let [one, other] = ["one", "a-longer-name"].map(|name| {
        fs::create_dir(directory.join(name)).expect("a directory");
        packed("deb.sh", &directory.join(name), &supply, "lighty-full")
    });
    assert!(bytes(&one) == bytes(&other), "{} differs", one.display());

    let list = run(Command::new(&dpkg).arg("--contents").arg(&one));
    for file in FILES.iter().chain(&[
        "/usr/share/doc/lighty-full/changelog.Debian.gz",
        "/usr/share/doc/lighty-full/copyright",
        "/usr/share/doc/lighty-full/sbom.cdx.json.gz",
        "/usr/share/doc/lighty-full/third-party.txt.gz",
        "/usr/share/zsh/vendor-completions/_lighty",
    ]) {
        assert!(list.contains(&format!(" .{file}\n")), "{file} is missing:\n{list}");
    }
    for line in list.lines() {
        assert!(line.contains(" root/root "), "{line}");
        let is_writable = line.as_bytes()[5] == b'w' || line.as_bytes()[8] == b'w';
        assert!(line.starts_with('l') || !is_writable, "{line}");
    }
    let field = |name: &str| run(Command::new(&dpkg).arg("--field").arg(&one).arg(name));
    assert!(field("Depends").starts_with("libc6 (>= 2."), "{}", field("Depends"));
    assert!(field("Provides").starts_with("lighty (= "));
    let control = directory.join("control");
    run(Command::new(&dpkg).arg("--control").arg(&one).arg(&control));
    let configurations = fs::read_to_string(control.join("conffiles")).expect("conffiles");
    let mut want: Vec<_> = FILES.iter().copied().filter(|file| file.starts_with("/etc/")).collect();
    want.push("/etc/needrestart/restart.d/lighty.service");
    assert_eq!(configurations.lines().collect::<Vec<_>>(), want);
    for script in ["postinst", "postrm", "prerm"] {
        assert_eq!(bytes(&control.join(script)), bytes(&packaging("debian").join(script)));
    }
    let Some(lintian) = find_optional(&["lintian"]) else { return };
    run(Command::new(lintian).args(["--allow-root", "--fail-on=error,warning"]).arg(&one));
}

#[test]
fn rpm_is_complete() {
    let Some(_) = find_optional(&["rpmbuild"]) else { return };
    let directory = empty_directory("rpm");
    let options = ["--no-default-features"];
    let Some(supply) = supply(&directory.join("supply"), &options) else { return };
    let package = packed("rpm.sh", &directory, &supply, "lighty-small");
    let query = |options: &[&str]| {
        let database = directory.join("database");
        let mut command = Command::new("rpm");
        run(command.arg("--dbpath").arg(database).args(options).arg("-p").arg(&package))
    };
    let list = query(&["-q", "-l"]);
    for file in FILES {
        assert!(list.lines().any(|line| line == *file), "{file} is missing:\n{list}");
    }
    assert!(!list.contains("spawn-fcgi"), "the small build has no programs beside the server");
    let configurations = query(&["-q", "-c"]);
    let want: Vec<_> = FILES.iter().copied().filter(|file| file.starts_with("/etc/")).collect();
    assert_eq!(configurations.lines().collect::<Vec<_>>(), want);
    let scripts = query(&["-q", "--scripts"]);
    assert!(scripts.contains("/usr/libexec/lighty/after-upgrade"), "{scripts}");
    assert!(query(&["-q", "--provides"]).contains("lighty = "));
}

/// The image's configuration, from its archive.
fn image_configuration(archive: &Path, directory: &Path) -> Value {
    run(Command::new("tar").arg("-C").arg(directory).arg("-xf").arg(archive));
    let json = |path: &str| -> Value {
        serde_json::from_slice(&bytes(&directory.join(path))).expect("JSON")
    };
    let blob = |descriptor: &Value| -> String {
        let digest = descriptor["digest"].as_str().expect("a digest");
        let path = format!("blobs/{}", digest.replace(':', "/"));
        let size = fs::metadata(directory.join(&path)).expect("a blob").len();
        assert_eq!(descriptor["size"], size);
        let sum = run(Command::new("sha256sum").arg(directory.join(&path)));
        assert!(digest.ends_with(sum.split(' ').next().expect("a sum")), "{digest}");
        path
    };
    assert_eq!(json("oci-layout")["imageLayoutVersion"], "1.0.0");
    let manifest = json(&blob(&json("index.json")["manifests"][0]));
    let layer = blob(&manifest["layers"][0]);
    let list = run(Command::new("tar").arg("-tzvf").arg(directory.join(layer)));
    for file in ["etc/lighty/lighty.conf", "usr/sbin/lighty", "usr/share/doc/lighty/LICENSE"] {
        assert!(list.contains(&format!(" {file}\n")), "{list}");
    }
    assert!(list.lines().any(|line| line.contains("65532/65532") && line.contains("run/lighty/")));
    json(&blob(&manifest["config"]))
}

#[test]
fn image_runs_as_its_dockerfile_says() {
    let (Some(_), Some(_)) = (find_optional(&["python3"]), find_optional(&["readelf"])) else {
        return;
    };
    let directory = empty_directory("image");
    let [one, other] = ["one.tar", "other.tar"].map(|name| {
        let archive = directory.join(name);
        let mut command = Command::new(packaging("oci.py"));
        run(command.arg(PAYLOAD).arg(&archive).env("SOURCE_DATE_EPOCH", EPOCH));
        archive
    });
    assert!(bytes(&one) == bytes(&other), "the images differ");
    let config = &image_configuration(&one, &directory)["config"];
    let dockerfile = fs::read_to_string(packaging("Dockerfile")).expect("a Dockerfile");
    let joined = dockerfile.replace("\\\n", " ");
    for (instruction, value) in [
        ("ENTRYPOINT ", &config["Entrypoint"]),
        ("CMD ", &config["Cmd"]),
        ("HEALTHCHECK ", &config["Healthcheck"]["Test"]),
    ] {
        let line = joined.lines().find(|line| line.starts_with(instruction)).expect(instruction);
        let list: Vec<String> =
            serde_json::from_str(&line[line.find('[').expect("a list")..]).expect("JSON");
        let value = value.as_array().expect("a list");
        let value = value.iter().filter(|word| *word != "CMD").collect::<Vec<_>>();
        assert_eq!(value, list.iter().collect::<Vec<_>>(), "{instruction}");
    }
    for (instruction, value) in [("USER", "User"), ("STOPSIGNAL", "StopSignal")] {
        let value = config[value].as_str().expect("text");
        assert!(dockerfile.contains(&format!("\n{instruction} {value}\n")), "{value}");
    }
}

fn bill_of_materials(supply: &Path) -> Vec<Value> {
    let bill: Value = serde_json::from_slice(&bytes(&supply.join("sbom"))).expect("JSON");
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(bill["metadata"]["component"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(bill["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    bill["components"].as_array().expect("components").clone()
}

#[test]
fn bill_of_materials_and_licences_name_every_library() {
    let directory = empty_directory("supply");
    let Some(full) = supply(&directory.join("full"), &[]) else { return };
    let Some(small) = supply(&directory.join("small"), &["--no-default-features"]) else { return };
    let names = |supply: &Path| -> Vec<String> {
        let rows = bill_of_materials(supply);
        rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
    };
    let lock = fs::read_to_string(crate::manual::source_tree().join("Cargo.lock")).expect("a lock");
    for row in bill_of_materials(&full) {
        assert!(row["licenses"][0].is_object(), "{row}");
        let Some(hash) = row["hashes"][0]["content"].as_str() else { continue };
        assert!(lock.contains(&format!("checksum = \"{hash}\"")), "{row}");
    }
    let (of_full, of_small) = (names(&full), names(&small));
    for name in [
        "rustls",
        "tokio",
        "AWS-LC",
        "LuaJIT",
        "PCRE2",
        "SQLite",
        "Zstandard",
        "mimalloc",
        "rust-std",
    ] {
        assert!(of_full.iter().any(|found| found == name), "{name}");
    }
    for name in ["LuaJIT", "SQLite", "instant-acme"] {
        assert!(!of_small.iter().any(|found| found == name), "{name}");
    }
    // Tools of tests and macros are in no binary.
    for name in ["proptest", "syn", "tempfile", "lighty-core"] {
        assert!(!of_full.iter().any(|found| found == name), "{name}");
    }
    let notices = fs::read_to_string(full.join("notices")).expect("notices");
    let copyright = fs::read_to_string(full.join("copyright")).expect("copyright");
    for name in &of_full {
        assert!(notices.contains(&format!("\n{name} ")), "{name}");
        assert!(copyright.contains(&format!("\nFiles: vendor/{name}-")), "{name}");
    }
}
