package interop;

import java.io.IOException;
import java.nio.file.Path;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.proxy.ProxyStartup;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/**
 * Apache's name server, broker and proxy (local mode) in one JVM.
 *
 * <p>Arguments: the directory with {@code broker.conf} and {@code rmq-proxy.json}, and the port of
 * the name server. Prints {@code READY} once the ports are open; ends at the end of standard input.
 */
public final class ApacheProxy {
    private ApacheProxy() {}

    public static void main(String[] args) throws Exception {
        Path home = Path.of(args[0]);
        System.setProperty("rocketmq.home.dir", home.toString());
        System.setProperty("RMQ_PROXY_HOME", home.toString());
        startNamesrv(home, Integer.parseInt(args[1]));
        ProxyStartup.main(new String[] {
            "-pm", "local",
            "-n", "127.0.0.1:" + args[1],
            "-bc", home.resolve("broker.conf").toString(),
            "-pc", home.resolve("rmq-proxy.json").toString(),
        });
        System.out.println("READY");
        System.out.flush();
        waitForEndOfInput();
        System.exit(0);
    }

    private static void startNamesrv(Path home, int port) throws Exception {
        NamesrvConfig config = new NamesrvConfig();
        config.setRocketmqHome(home.toString());
        config.setKvConfigPath(home.resolve("namesrv/kvConfig.json").toString());
        config.setConfigStorePath(home.resolve("namesrv/namesrv.properties").toString());
        NettyServerConfig server = new NettyServerConfig();
        server.setBindAddress("127.0.0.1");
        server.setListenPort(port);
        NamesrvController namesrv = new NamesrvController(config, server, new NettyClientConfig());
        if (!namesrv.initialize()) {
            throw new IllegalStateException("the name server did not initialise");
        }
        namesrv.start();
    }

    private static void waitForEndOfInput() throws IOException {
        while (System.in.read() >= 0) {
            // Whatever comes is ignored; only the end counts.
        }
    }
}
