package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends numbered messages through DefaultMQProducer. */
final class JavaProducer {
    private final DefaultMQProducer producer;
    private final JSONObject command;
    private final JSONArray receipts = new JSONArray();
    private final List<MessageQueue> queues;

    private JavaProducer(DefaultMQProducer producer, JSONObject command) throws Exception {
        this.producer = producer;
        this.command = command;
        // Asked for only where a queue is named: the look-up of an unknown topic fails.
        this.queues = command.containsKey("queueId")
                ? producer.fetchPublishMessageQueues(command.getString("topic")) : List.of();
    }

    /**
     * Send {@code count} messages from number {@code first} on.
     *
     * <p>{@code mode} is single, batch ({@code batchSize} each), oneway or async; {@code threads}
     * and {@code untilFailure}, which makes the first failure the end, apply to single. {@code keys}:
     * the message's number is its key; {@code tags}: taken in turn.
     *
     * @return one {@code [status, msgId, offsetMsgId, queueId, queueOffset]} per answer
     */
    static JSONArray send(JSONObject command) throws Exception {
        DefaultMQProducer producer =
                new DefaultMQProducer(
                        JavaClient.stringOr(command, "group", "interop-producer"),
                        JavaClient.hook(command));
        producer.setNamesrvAddr(command.getString("nameserver"));
        producer.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        producer.setInstanceName(JavaClient.instanceName(command));
        producer.setSendMsgTimeout(JavaClient.intOr(command, "timeoutMs", 10_000));
        producer.setRetryTimesWhenSendFailed(0);
        if (command.containsKey("maxMessageSize")) {
            producer.setMaxMessageSize(command.getIntValue("maxMessageSize"));
        }
        producer.start();
        try {
            JavaProducer sender = new JavaProducer(producer, command);
            sender.sendAll();
            return sender.receipts;
        } finally {
            JavaClient.closeLater(producer::shutdown);
        }
    }

    private void sendAll() throws Exception {
        int first = JavaClient.intOr(command, "first", 0);
        int end = first + command.getIntValue("count");
        switch (JavaClient.stringOr(command, "mode", "single")) {
            case "single" -> sendSingles(first, end);
            case "batch" -> sendBatches(first, end);
            case "oneway" -> {
                for (int i = first; i < end; i++) {
                    producer.sendOneway(message(i));
                }
            }
            case "async" -> sendAsync(first, end);
            default -> throw new IllegalArgumentException("unknown mode");
        }
    }

    private void sendSingles(int first, int end) throws Exception {
        int threads = JavaClient.intOr(command, "threads", 1);
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<?>> parts = new ArrayList<>();
        for (int part = 0; part < threads; part++) {
            int start = first + part;
            parts.add(pool.submit(() -> {
                for (int i = start; i < end; i += threads) {
                    try {
                        receipt(sendOne(message(i)));
                    } catch (Exception e) {
                        if (command.getBooleanValue("untilFailure")) {
                            break;
                        }
                        throw e;
                    }
                }
                return null;
            }));
        }
        pool.shutdown();
        for (Future<?> part : parts) {
            part.get();
        }
    }

    private SendResult sendOne(Message message) throws Exception {
        return queues.isEmpty() ? producer.send(message) : producer.send(message, queue());
    }

    private void sendBatches(int first, int end) throws Exception {
        int batchSize = JavaClient.intOr(command, "batchSize", 32);
        for (int start = first; start < end; start += batchSize) {
            List<Message> batch = new ArrayList<>();
            for (int i = start; i < Math.min(end, start + batchSize); i++) {
                batch.add(message(i));
            }
            receipt(queues.isEmpty() ? producer.send(batch) : producer.send(batch, queue()));
        }
    }

    private void sendAsync(int first, int end) throws Exception {
        CountDownLatch answers = new CountDownLatch(end - first);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int i = first; i < end; i++) {
            producer.send(message(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    receipt(result);
                    answers.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    failure.set(e);
                    answers.countDown();
                }
            });
        }
        if (!answers.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(answers.getCount() + " sends were not answered");
        }
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
    }

    private Message message(int index) {
        String prefix = JavaClient.stringOr(command, "prefix", "body");
        byte[] body = Bodies.body(prefix, index, JavaClient.intOr(command, "bodySize", 0));
        Message message = new Message(command.getString("topic"), body);
        if (command.getBooleanValue("keys")) {
            message.setKeys(prefix + "-" + index);
        }
        JSONArray tags = command.getJSONArray("tags");
        if (tags != null) {
            message.setTags(tags.getString(index % tags.size()));
        }
        JSONObject properties = command.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> message.putUserProperty(name, value.toString()));
        }
        if (command.containsKey("delayLevel")) {
            message.setDelayTimeLevel(command.getIntValue("delayLevel"));
        }
        return message;
    }

    private MessageQueue queue() {
        int queueId = command.getIntValue("queueId");
        return queues.stream().filter(q -> q.getQueueId() == queueId).findFirst().orElseThrow();
    }

    private void receipt(SendResult result) {
        JSONArray line = new JSONArray();
        line.add(result.getSendStatus().name());
        line.add(result.getMsgId());
        line.add(result.getOffsetMsgId());
        line.add(result.getMessageQueue().getQueueId());
        line.add(result.getQueueOffset());
        synchronized (receipts) {
            receipts.add(line);
        }
    }
}
