package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;

/** The push consumers that run now, so that a test can wait until they have shared the queues. */
final class JavaMembers {
    private static final Set<DefaultMQPushConsumer> RUNNING = ConcurrentHashMap.newKeySet();

    private JavaMembers() {}

    static void start(DefaultMQPushConsumer consumer) throws Exception {
        RUNNING.add(consumer);
        consumer.start();
    }

    static void shutdown(DefaultMQPushConsumer consumer) {
        RUNNING.remove(consumer);
        consumer.shutdown();
    }

    /** Close the members of {@code group} that stayed. */
    static JSONObject leave(JSONObject command) {
        for (DefaultMQPushConsumer consumer : RUNNING) {
            if (consumer.getConsumerGroup().equals(command.getString("group"))) {
                shutdown(consumer);
            }
        }
        return new JSONObject();
    }

    /** Return how many queues of {@code topic} each running member of {@code group} has, sorted. */
    static JSONArray assigned(JSONObject command) {
        String topic = command.getString("topic");
        JSONArray counts = new JSONArray();
        RUNNING.stream()
                .filter(consumer -> consumer.getConsumerGroup().equals(command.getString("group")))
                .map(consumer -> consumer.getDefaultMQPushConsumerImpl()
                        .getRebalanceImpl()
                        .getProcessQueueTable()
                        .keySet()
                        .stream()
                        .filter(queue -> queue.getTopic().equals(topic))
                        .count())
                .sorted()
                .forEach(counts::add);
        return counts;
    }
}
