import java.io.FileInputStream;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** The requests that every client of real/clients.rs sends, and a WebSocket, by java.net.http. */
public class Requests {
    static final int UPLOAD_BYTES = 7 << 20;
    static final long PATIENCE_S = 30;

    static HttpClient client;
    static String base;

    public static void main(String[] arguments) throws Exception {
        base = arguments[1];
        HttpClient.Builder builder = HttpClient.newBuilder();
        if (arguments.length > 2) {
            builder.sslContext(trusting(arguments[2]));
        }
        client = builder.build();
        switch (arguments[0]) {
            case "requests" -> {
                sayDownloads();
                sayUploads();
                sayEnds();
            }
            case "websocket" -> sayMessages();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        // Threads of the client may go on for a while.
        System.exit(0);
    }

    static SSLContext trusting(String file) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream pem = new FileInputStream(file)) {
            var authority = CertificateFactory.getInstance("X.509").generateCertificate(pem);
            store.setCertificateEntry("authority", authority);
        }
        var factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, factory.getTrustManagers(), null);
        return context;
    }

    static HttpRequest.Builder to(String path) {
        return HttpRequest.newBuilder(URI.create(base + path));
    }

    static <T> T await(CompletableFuture<T> future) throws Exception {
        return future.get(PATIENCE_S, TimeUnit.SECONDS);
    }

    static HttpResponse<byte[]> send(HttpRequest request) throws Exception {
        return await(client.sendAsync(request, BodyHandlers.ofByteArray()));
    }

    static String text(HttpResponse<byte[]> response) {
        return new String(response.body()).strip();
    }

    static String hello() throws Exception {
        return text(send(to("/hello.txt").build()));
    }

    static void sayDownloads() throws Exception {
        HttpResponse<byte[]> response = send(to("/hello.txt").build());
        String version = response.version() == HttpClient.Version.HTTP_2 ? "HTTP/2" : "HTTP/1";
        System.out.println("get: " + version + " " + response.statusCode() + " " + text(response));
        String tag = response.headers().firstValue("etag").orElseThrow();
        response = send(to("/hello.txt").header("If-None-Match", tag).build());
        System.out.println("validated: " + response.statusCode());
        response = send(to("/large").method("HEAD", BodyPublishers.noBody()).build());
        System.out.println("head: " + response.statusCode() + " "
                + response.headers().firstValue("content-length").orElseThrow());
        response = send(to("/large").build());
        int hash = 0;
        for (byte b : response.body()) {
            hash = hash * 31 + (b & 0xff);
        }
        System.out.println("large: " + response.statusCode() + " " + response.body().length + " "
                + Integer.toUnsignedString(hash));
        List<CompletableFuture<HttpResponse<byte[]>>> calls = new ArrayList<>();
        for (int n = 0; n < 100; n++) {
            HttpRequest request = to("/hello.txt").build();
            calls.add(client.sendAsync(request, BodyHandlers.ofByteArray()));
        }
        int right = 0;
        for (var call : calls) {
            right += text(await(call)).equals("hello") ? 1 : 0;
        }
        System.out.println("many: " + right);
    }

    static void sayUploads() throws Exception {
        byte[] content = new byte[UPLOAD_BYTES];
        var response = send(to("/up.cgi").POST(BodyPublishers.ofByteArray(content)).build());
        System.out.println("upload: " + response.statusCode() + " " + text(response));
        // A publisher whose length is not known.
        var publisher = BodyPublishers.fromPublisher(BodyPublishers.ofByteArray(content));
        response = send(to("/early.cgi").POST(publisher).build());
        System.out.println("streamed: " + response.statusCode() + " " + text(response));
        response = send(to("/up.cgi").expectContinue(true)
                .POST(BodyPublishers.ofString("0123456789")).build());
        System.out.println("expected: " + response.statusCode() + " " + text(response));
        // It sends the whole of a body that is refused, whatever the server resets.
        response = send(to("/missing").POST(BodyPublishers.ofByteArray(new byte[60_000])).build());
        System.out.println("refused: " + response.statusCode());
    }

    static void sayEnds() throws Exception {
        for (int n = 0; n < 20; n++) {
            var call = client.sendAsync(to("/large").build(), BodyHandlers.ofInputStream());
            try (InputStream content = await(call).body()) {
                content.readNBytes(1000);
            }
        }
        System.out.println("cancelled: " + hello());
        for (int n = 0; n < 10; n++) {
            Endless content = new Endless();
            var request = to("/up.cgi").POST(BodyPublishers.ofInputStream(() -> content)).build();
            var call = client.sendAsync(request, BodyHandlers.ofByteArray());
            await(content.begun);
            if (!call.cancel(true)) {
                throw new AssertionError("a request that was to be cut got " + await(call));
            }
            content.over.countDown();
        }
        System.out.println("cut: " + hello());
    }

    /** A body that stops after 100,000 bytes. */
    static class Endless extends InputStream {
        CompletableFuture<Void> begun = new CompletableFuture<>();
        CountDownLatch over = new CountDownLatch(1);
        int left = 100_000;

        @Override
        public int read() {
            if (left > 0) {
                left--;
                return 0;
            }
            begun.complete(null);
            try {
                over.await();
            } catch (InterruptedException interrupted) {
                // Over as well.
            }
            return -1;
        }
    }

    /** Collects whole messages. */
    static class Listener implements WebSocket.Listener {
        CompletableFuture<String> text = new CompletableFuture<>();
        CompletableFuture<Integer> binary = new CompletableFuture<>();
        CompletableFuture<String> pong = new CompletableFuture<>();
        CompletableFuture<String> close = new CompletableFuture<>();
        StringBuilder letters = new StringBuilder();
        int bytes;

        @Override
        public CompletionStage<?> onText(WebSocket socket, CharSequence data, boolean isLast) {
            letters.append(data);
            if (isLast) {
                text.complete(letters.toString());
            }
            return WebSocket.Listener.super.onText(socket, data, isLast);
        }

        @Override
        public CompletionStage<?> onBinary(WebSocket socket, ByteBuffer data, boolean isLast) {
            bytes += data.remaining();
            if (isLast) {
                binary.complete(bytes);
            }
            return WebSocket.Listener.super.onBinary(socket, data, isLast);
        }

        @Override
        public CompletionStage<?> onPong(WebSocket socket, ByteBuffer data) {
            pong.complete(new String(data.array(), data.position(), data.remaining()));
            return WebSocket.Listener.super.onPong(socket, data);
        }

        @Override
        public CompletionStage<?> onClose(WebSocket socket, int status, String reason) {
            close.complete(status + " " + reason);
            return null;
        }

        @Override
        public void onError(WebSocket socket, Throwable error) {
            for (var future : List.of(text, binary, pong, close)) {
                future.completeExceptionally(error);
            }
        }
    }

    static void sayMessages() throws Exception {
        Listener heard = new Listener();
        WebSocket socket = await(client.newWebSocketBuilder().subprotocols("echo")
                .buildAsync(URI.create(base), heard));
        System.out.println("open: " + socket.getSubprotocol());
        await(socket.sendText("gr\u00fc", false));
        await(socket.sendText("\u00dfe", true));
        System.out.println("text: " + await(heard.text).equals("gr\u00fc\u00dfe"));
        await(socket.sendBinary(ByteBuffer.allocate(1 << 20), true));
        System.out.println("binary: " + await(heard.binary));
        await(socket.sendPing(ByteBuffer.wrap("there".getBytes())));
        System.out.println("pong: " + await(heard.pong));
        await(socket.sendText("close 4001", true));
        System.out.println("close: " + await(heard.close));
    }
}
