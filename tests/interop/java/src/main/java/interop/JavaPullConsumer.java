package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.HashSet;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads topics with both of the Java client's pull consumers. */
final class JavaPullConsumer {
    private JavaPullConsumer() {}

    /**
     * Read every queue of a topic from its minimum to its maximum offset.
     *
     * @return {@code messages}, {@code queues} as {@code [brokerName, queueId, min, max]}, and
     *     {@code statuses} of the pulls that found nothing before the end
     */
    static JSONObject pull(JSONObject command) throws Exception {
        DefaultMQPullConsumer consumer =
                new DefaultMQPullConsumer(JavaClient.stringOr(command, "group", "interop-pull"));
        consumer.setNamesrvAddr(command.getString("nameserver"));
        consumer.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        consumer.setInstanceName(JavaClient.instanceName(command));
        String expression = JavaClient.stringOr(command, "expression", "*");
        JSONArray messages = new JSONArray();
        JSONArray queues = new JSONArray();
        JSONArray statuses = new JSONArray();
        consumer.start();
        try {
            for (MessageQueue queue :
                    consumer.fetchSubscribeMessageQueues(command.getString("topic"))) {
                long offset = consumer.minOffset(queue);
                long end = consumer.maxOffset(queue);
                queues.add(
                        JSONArray.of(queue.getBrokerName(), queue.getQueueId(), offset, end));
                while (offset < end) {
                    PullResult result = consumer.pull(queue, expression, offset, 32);
                    switch (result.getPullStatus()) {
                        case FOUND -> {
                            for (MessageExt message : result.getMsgFoundList()) {
                                messages.add(Bodies.describe(message));
                            }
                        }
                        case NO_MATCHED_MSG -> { }
                        default -> statuses.add(result.getPullStatus() + " at " + offset);
                    }
                    if (result.getNextBeginOffset() <= offset) {
                        throw new IllegalStateException("stuck at " + queue + " " + result);
                    }
                    offset = result.getNextBeginOffset();
                }
            }
        } finally {
            JavaClient.closeLater(consumer::shutdown);
        }
        JSONObject answer = new JSONObject();
        answer.put("messages", messages);
        answer.put("queues", queues);
        answer.put("statuses", statuses);
        return answer;
    }

    /** Poll a subscription until {@code count} distinct messages were seen or time is over. */
    static JSONArray litePull(JSONObject command) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(command.getString("group"));
        consumer.setNamesrvAddr(command.getString("nameserver"));
        consumer.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        consumer.setInstanceName(JavaClient.instanceName(command));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(
                command.getString("topic"), JavaClient.stringOr(command, "expression", "*"));
        long deadline =
                System.nanoTime() + JavaClient.intOr(command, "timeoutMs", 300_000) * 1_000_000L;
        Set<String> seen = new HashSet<>();
        JSONArray messages = new JSONArray();
        consumer.start();
        try {
            while (seen.size() < command.getIntValue("count") && System.nanoTime() < deadline) {
                for (MessageExt message : consumer.poll(500)) {
                    if (seen.add(message.getMsgId())) {
                        messages.add(Bodies.describe(message));
                    }
                }
            }
            consumer.commitSync();
        } finally {
            consumer.shutdown();
        }
        return messages;
    }
}
