package interop;

import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Does with the official client what lines of JSON on standard input say; see programs.py. */
public final class GrpcClient {
    private static final long PATIENCE_MS = 300_000;
    private static final Duration AWAIT = Duration.ofSeconds(5);
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    private final Map<?, ?> job;
    private static Producer heldProducer;
    private static SimpleConsumer heldConsumer;
    private static PushConsumer heldPush;

    private GrpcClient(Map<?, ?> job) {
        this.job = job;
    }

    public static void main(String[] args) throws Exception {
        Gson gson = new Gson();
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Map<String, Object> answer = new TreeMap<>();
            try {
                answer.put("result", new GrpcClient(gson.fromJson(line, Map.class)).run());
            } catch (Throwable error) {
                error.printStackTrace();
                answer.put("error", error.toString());
            }
            System.out.println(gson.toJson(answer));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private Object run() throws Exception {
        switch (text("op")) {
            case "send": return send();
            case "receive": return receive();
            case "normal": return normal();
            case "fifo": return fifo();
            case "delay": return delay();
            case "transaction": return transaction();
            case "push": return push();
            case "invisible": return invisible();
            case "hold": return hold();
            case "resume": return resume();
            default: throw new IllegalArgumentException(text("op"));
        }
    }

    private Object send() throws Exception {
        try (Producer producer = producer(null)) {
            for (int i = 0; i < count(); i++) {
                producer.send(message("normal-" + i).setTag("a").setKeys("k1", "k2")
                        .addProperty("colour", "red").build());
            }
        }
        return List.of();
    }

    private Object receive() throws Exception {
        try (SimpleConsumer consumer = consumer()) {
            return take(consumer, count());
        }
    }

    private Object normal() throws Exception {
        send();
        return receive();
    }

    private Object fifo() throws Exception {
        try (Producer producer = producer(null); SimpleConsumer consumer = consumer()) {
            for (int i = 0; i < count(); i++) {
                producer.send(message("fifo-" + i).setMessageGroup("one").build());
            }
            return take(consumer, count());
        }
    }

    private Object delay() throws Exception {
        try (Producer producer = producer(null); SimpleConsumer consumer = consumer()) {
            long due = System.currentTimeMillis() + 2000;
            SendReceipt recalled =
                    producer.send(message("recalled").setDeliveryTimestamp(due).build());
            producer.recallMessage(text("topic"), recalled.getRecallHandle());
            producer.send(message("delayed").setDeliveryTimestamp(due + 1000).build());
            List<Object> taken = take(consumer, 1);
            return Map.of("messages", taken, "lateMs", System.currentTimeMillis() - due - 1000);
        }
    }

    private Object transaction() throws Exception {
        List<String> asked = new ArrayList<>();
        TransactionChecker checker = view -> {
            synchronized (asked) {
                asked.add(body(view));
            }
            return body(view).equals("rolled-back")
                    ? TransactionResolution.ROLLBACK
                    : TransactionResolution.COMMIT;
        };
        try (Producer producer = producer(checker); SimpleConsumer consumer = consumer()) {
            for (String fate : List.of("rolled-back", "committed", "lost")) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message(fate).build(), transaction);
                if (fate.equals("committed")) {
                    transaction.commit();
                } else if (fate.equals("rolled-back")) {
                    transaction.rollback();
                }
            }
            List<Object> taken = new ArrayList<>();
            while (taken.stream().noneMatch(one -> ((Map<?, ?>) one).get("body").equals("lost"))) {
                taken.addAll(take(consumer, 1));
            }
            synchronized (asked) {
                return Map.of("messages", taken, "asked", List.copyOf(asked));
            }
        }
    }

    private Object push() throws Exception {
        List<Integer> attempts = new ArrayList<>();
        CountDownLatch wanted = new CountDownLatch(count());
        heldPush = PROVIDER.newPushConsumerBuilder()
                .setClientConfiguration(configuration())
                .setConsumerGroup(text("group"))
                .setSubscriptionExpressions(Map.of(text("topic"), FilterExpression.SUB_ALL))
                .setMessageListener(view -> {
                    synchronized (attempts) {
                        attempts.add(view.getDeliveryAttempt());
                    }
                    wanted.countDown();
                    return ConsumeResult.FAILURE;
                })
                .build();
        try (Producer producer = producer(null)) {
            producer.send(message("poison").build());
        }
        if (!wanted.await(PATIENCE_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("deliveries: " + attempts);
        }
        synchronized (attempts) {
            return List.copyOf(attempts);
        }
    }

    private Object invisible() throws Exception {
        try (Producer producer = producer(null); SimpleConsumer consumer = consumer()) {
            producer.send(message("again").build());
            MessageView first = next(consumer, Duration.ofSeconds(60));
            consumer.changeInvisibleDuration(first, Duration.ofSeconds(1));
            MessageView second = next(consumer, Duration.ofSeconds(60));
            consumer.ack(second);
            return List.of(described(first), described(second));
        }
    }

    private Object hold() throws Exception {
        heldProducer = producer(null);
        heldConsumer = consumer();
        heldProducer.send(message("before").build());
        return take(heldConsumer, 1);
    }

    private Object resume() throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            try {
                heldProducer.send(message("after").build());
                return take(heldConsumer, 1);
            } catch (Exception error) {
                if (System.currentTimeMillis() > deadline) {
                    throw error;
                }
                Thread.sleep(200);
            }
        }
    }

    private List<Object> take(SimpleConsumer consumer, int count) throws Exception {
        List<Object> taken = new ArrayList<>();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (taken.size() < count) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("only " + taken);
            }
            for (MessageView view : consumer.receive(16, Duration.ofSeconds(15))) {
                taken.add(described(view));
                consumer.ack(view);
            }
        }
        return taken;
    }

    private MessageView next(SimpleConsumer consumer, Duration invisible) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < deadline) {
            List<MessageView> views = consumer.receive(1, invisible);
            if (!views.isEmpty()) {
                return views.get(0);
            }
        }
        throw new IllegalStateException("nothing came");
    }

    private Producer producer(TransactionChecker checker) throws Exception {
        var builder = PROVIDER.newProducerBuilder()
                .setClientConfiguration(configuration())
                .setTopics(text("topic"));
        return (checker == null ? builder : builder.setTransactionChecker(checker)).build();
    }

    private SimpleConsumer consumer() throws Exception {
        return PROVIDER.newSimpleConsumerBuilder()
                .setClientConfiguration(configuration())
                .setConsumerGroup(text("group"))
                .setAwaitDuration(AWAIT)
                .setSubscriptionExpressions(Map.of(text("topic"), FilterExpression.SUB_ALL))
                .build();
    }

    private ClientConfiguration configuration() {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
                .setEndpoints(text("endpoint"))
                .enableSsl((Boolean) job.get("tls"));
        if (job.get("accessKey") != null) {
            builder.setCredentialProvider(
                    new StaticSessionCredentialsProvider(text("accessKey"), text("secretKey")));
        }
        return builder.build();
    }

    private MessageBuilder message(String body) {
        return PROVIDER.newMessageBuilder()
                .setTopic(text("topic"))
                .setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static Map<String, Object> described(MessageView view) {
        Map<String, Object> described = new TreeMap<>();
        described.put("body", body(view));
        described.put("tag", view.getTag().orElse(""));
        described.put("keys", List.copyOf(view.getKeys()));
        described.put("properties", view.getProperties());
        described.put("group", view.getMessageGroup().orElse(""));
        described.put("attempt", view.getDeliveryAttempt());
        return described;
    }

    private static String body(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }

    private int count() {
        return ((Number) job.get("count")).intValue();
    }

    private String text(String key) {
        return (String) job.get(key);
    }
}
