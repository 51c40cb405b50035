package interop;

import java.io.FileReader;
import java.io.IOException;
import java.io.Reader;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.ControllerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.controller.ControllerManager;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Apache's name server and broker in one JVM.
 *
 * <p>The one argument names a properties file in the form of broker.conf. Beside RocketMQ's own keys:
 * {@code namesrvPort} starts a name server there (absent: none; the broker then needs
 * {@code namesrvAddr}), {@code controllerDLegerPeers} a controller at the port of
 * {@code controllerDLegerSelfId}, {@code listenPort} a broker (absent: none); {@code topics} lists
 * topics to create, as {@code name:queues} or {@code name:queues:attribute=value}, separated by
 * commas.
 *
 * <p>Prints {@code READY <version>} once requests are answered. Ends cleanly (no abort file stays
 * behind) on SIGTERM or at the end of standard input.
 */
public final class ApacheServer {
    private final Properties settings;
    private NamesrvController namesrv;
    private BrokerController broker;
    private ControllerManager controller;

    private ApacheServer(Properties settings) {
        this.settings = settings;
    }

    public static void main(String[] args) throws Exception {
        System.setProperty(
                RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        Properties settings = new Properties();
        try (Reader reader = new FileReader(args[0])) {
            settings.load(reader);
        }
        ApacheServer server = new ApacheServer(settings);
        AtomicBoolean stopped = new AtomicBoolean();
        Runnable stop = () -> {
            if (stopped.compareAndSet(false, true)) {
                server.stop();
            }
        };
        Runtime.getRuntime().addShutdownHook(new Thread(stop));
        try {
            server.start();
        } catch (Exception e) {
            // Threads that already run would keep the JVM, and with it who waits for READY.
            e.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        System.out.println("READY " + MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION));
        System.out.flush();
        waitForEndOfInput();
        System.exit(0);
    }

    private void start() throws Exception {
        if (settings.containsKey("namesrvPort")) {
            startNamesrv();
        }
        if (settings.containsKey("controllerDLegerPeers")) {
            startController();
        }
        if (settings.containsKey("listenPort")) {
            startBroker();
            createTopics();
            register();
        }
    }

    private void startNamesrv() throws Exception {
        NamesrvConfig config = new NamesrvConfig();
        Path home = Path.of(settings.getProperty("storePathRootDir", ".")).resolve("../namesrv");
        config.setRocketmqHome(home.toString());
        config.setKvConfigPath(home.resolve("kvConfig.json").toString());
        config.setConfigStorePath(home.resolve("namesrv.properties").toString());
        NettyServerConfig netty = new NettyServerConfig();
        netty.setBindAddress("127.0.0.1");
        netty.setListenPort(Integer.parseInt(settings.getProperty("namesrvPort")));
        namesrv = new NamesrvController(config, netty);
        require(namesrv.initialize(), "the name server did not initialise");
        namesrv.start();
    }

    private void startController() {
        ControllerConfig config = new ControllerConfig();
        MixAll.properties2Object(settings, config);
        NettyServerConfig netty = new NettyServerConfig();
        netty.setBindAddress("127.0.0.1");
        String address = config.getDLedgerAddress();
        netty.setListenPort(Integer.parseInt(address.substring(address.lastIndexOf(':') + 1)));
        controller = new ControllerManager(config, netty, new NettyClientConfig());
        require(controller.initialize(), "the controller did not initialise");
        controller.start();
    }

    private void startBroker() throws Exception {
        BrokerConfig brokerConfig = new BrokerConfig();
        NettyServerConfig netty = new NettyServerConfig();
        NettyClientConfig client = new NettyClientConfig();
        MessageStoreConfig store = new MessageStoreConfig();
        AuthConfig auth = new AuthConfig();
        for (Object config : new Object[] {brokerConfig, netty, client, store, auth}) {
            MixAll.properties2Object(settings, config);
        }
        auth.setConfigName(brokerConfig.getBrokerName());
        auth.setClusterName(brokerConfig.getBrokerClusterName());
        auth.setAuthConfigPath(Path.of(store.getStorePathRootDir(), "config").toString());
        broker = new BrokerController(brokerConfig, netty, client, store, auth);
        broker.getConfiguration().registerConfig(settings);
        require(broker.initialize(), "the broker did not initialise (does the store fit?)");
        broker.start();
    }

    private void createTopics() {
        for (String entry : settings.getProperty("topics", "").split(",")) {
            String[] parts = entry.split(":");
            if (parts.length < 2) {
                continue;
            }
            int queues = Integer.parseInt(parts[1]);
            TopicConfig topic = new TopicConfig(parts[0], queues, queues);
            for (int i = 2; i < parts.length; i++) {
                String[] attribute = parts[i].split("=", 2);
                topic.getAttributes().put("+" + attribute[0], attribute[1]);
            }
            if (broker.getTopicConfigManager().selectTopicConfig(parts[0]) == null) {
                broker.getTopicConfigManager().updateTopicConfig(topic);
            }
        }
    }

    /** Register until the name server knows every topic: the first registration may get lost. */
    private void register() throws InterruptedException {
        broker.registerBrokerAll(true, false, true);
        while (namesrv != null && !namesrv.getRouteInfoManager().getAllTopicList().getTopicList()
                .containsAll(broker.getTopicConfigManager().getTopicConfigTable().keySet())) {
            Thread.sleep(50);
            broker.registerBrokerAll(true, false, true);
        }
    }

    /** Stop the broker; the name server keeps nothing that its end could spoil. */
    private void stop() {
        if (broker != null) {
            broker.shutdown();
        }
    }

    private static void require(boolean condition, String message) {
        if (!condition) {
            System.err.println(message);
            Runtime.getRuntime().halt(1);
        }
    }

    private static void waitForEndOfInput() throws IOException {
        while (System.in.read() >= 0) {
            // Whatever comes is ignored; only the end counts.
        }
    }
}
