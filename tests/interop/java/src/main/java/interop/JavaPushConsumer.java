package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** Consumes a topic with DefaultMQPushConsumer, clustering and concurrent. */
final class JavaPushConsumer {
    private JavaPushConsumer() {}

    /**
     * Consume until {@code count} distinct messages were seen or {@code timeoutMs} is over. With
     * {@code stays} it remains a member, which commits every second, until "leave" closes it.
     *
     * @return {@code messages} (each once) and {@code deliveries} (how often any came)
     */
    static JSONObject consume(JSONObject command) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                command.getString("group"),
                JavaClient.hook(command),
                new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(command.getString("nameserver"));
        consumer.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        consumer.setInstanceName(JavaClient.instanceName(command));
        boolean fromFirst = !"last".equals(command.getString("from"));
        consumer.setConsumeFromWhere(fromFirst
                ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
                : ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        if (command.getBooleanValue("broadcast")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        consumer.setConsumeMessageBatchMaxSize(32);
        // Or the batch that completes the count would not be among the offsets stored at the end.
        consumer.setAwaitTerminationMillisWhenShutdown(5_000);
        boolean stays = command.getBooleanValue("stays");
        if (stays) {
            consumer.setPersistConsumerOffsetInterval(1_000);
        }
        consumer.setHeartbeatBrokerInterval(JavaClient.intOr(command, "heartbeatMs", 30_000));
        String topic = command.getString("topic");
        if (command.containsKey("sql")) {
            consumer.subscribe(topic, MessageSelector.bySql(command.getString("sql")));
        } else {
            consumer.subscribe(topic, JavaClient.stringOr(command, "expression", "*"));
        }
        int count = command.getIntValue("count");
        CountDownLatch missing = new CountDownLatch(count);
        Set<String> seen = new HashSet<>();
        JSONArray messages = new JSONArray();
        int[] deliveries = {0};
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            synchronized (seen) {
                for (MessageExt message : (List<MessageExt>) batch) {
                    deliveries[0]++;
                    if (seen.add(message.getMsgId())) {
                        messages.add(Bodies.describe(message));
                        missing.countDown();
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        JavaMembers.start(consumer);
        try {
            missing.await(JavaClient.intOr(command, "timeoutMs", 300_000), TimeUnit.MILLISECONDS);
        } finally {
            if (!stays) {
                JavaMembers.shutdown(consumer);
            }
        }
        JSONObject answer = new JSONObject();
        synchronized (seen) {
            answer.put("messages", messages);
            answer.put("deliveries", deliveries[0]);
        }
        return answer;
    }
}
