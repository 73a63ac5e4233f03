//! A WebSocket echo server: Python's `websockets`.

use super::{Listen, Program, put, python_with, text};

const SERVER: &str = r#"
import asyncio, sys, websockets

async def echo(socket, *path):
    try:
        async for message in socket:
            if message == "close 4001":
                await socket.close(4001, "as asked")
            elif message == "ping me":
                await (await socket.ping(b"are you there"))
                await socket.send("ponged")
            else:
                await socket.send(message)
    except websockets.ConnectionClosed:
        pass

async def main():
    server = websockets.serve(echo, "127.0.0.1", int(sys.argv[1]), max_size=64 << 20,
                              max_queue=4, ping_interval=None, subprotocols=["echo"])
    async with server:
        await asyncio.Future()

asyncio.run(main())
"#;

/// A running server.
pub struct WebSocketServer {
    _program: Program,
    listen: Listen,
}

impl WebSocketServer {
    /// Starts a server on TCP.
    #[must_use]
    pub fn start() -> Option<Self> {
        let python = python_with("websockets")?;
        let directory = Program::directory();
        put(&directory, "echo.py", SERVER);
        let listen = Listen::free_port();
        let port = listen.address().port().to_string();
        let file = directory.path().join("echo.py");
        let mut program =
            Program::start(directory, &[text(&python), "-u", text(&file), &port], &[]);
        program.await_listening(&listen);
        Some(Self { _program: program, listen })
    }

    /// Address of the listener.
    #[must_use]
    pub fn listen(&self) -> &Listen {
        &self.listen
    }
}
