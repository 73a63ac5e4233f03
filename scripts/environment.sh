# Sourced by the other scripts: the toolchain, the tools that scripts/needs.sh installs, and one
# absolute target directory for every step.
command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"
case "${CARGO_TARGET_DIR:-}" in
    /*) ;;
    *) CARGO_TARGET_DIR=$PWD/${CARGO_TARGET_DIR:-target} ;;
esac
PATH="$CARGO_TARGET_DIR/tools/bin:$PATH"
export PATH CARGO_TARGET_DIR
