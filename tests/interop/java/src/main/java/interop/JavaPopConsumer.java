package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Consumes a topic with DefaultMQPushConsumer in POP mode, as the broker assigns it. */
final class JavaPopConsumer {
    private JavaPopConsumer() {}

    /**
     * Have the group pop, then consume until {@code count} messages succeeded or {@code timeoutMs}
     * is over. Every {@code failEvery}-th message fails the first time.
     *
     * @return {@code messages} (what succeeded, in that order) and {@code failures}
     */
    static JSONObject consume(JSONObject command) throws Exception {
        String topic = command.getString("topic");
        String group = command.getString("group");
        setMode(command, topic, group);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(command.getString("nameserver"));
        consumer.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        consumer.setInstanceName(JavaClient.instanceName(command));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.setAwaitTerminationMillisWhenShutdown(5_000);
        consumer.subscribe(topic, "*");
        // Ten seconds are the client's shortest pause before a failed message comes back.
        Method delays =
                consumer.getDefaultMQPushConsumerImpl().getClass().getDeclaredMethod("getPopDelayLevel");
        delays.setAccessible(true);
        ((int[]) delays.invoke(consumer.getDefaultMQPushConsumerImpl()))[0] = 1;
        int failEvery = command.getIntValue("failEvery");
        CountDownLatch missing = new CountDownLatch(command.getIntValue("count"));
        Map<String, Integer> attempts = new HashMap<>();
        JSONArray messages = new JSONArray();
        int[] failures = {0};
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            synchronized (attempts) {
                for (MessageExt message : (List<MessageExt>) batch) {
                    boolean isFirst = attempts.merge(message.getMsgId(), 1, Integer::sum) == 1;
                    if (isFirst && attempts.size() % failEvery == 0) {
                        failures[0]++;
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                    messages.add(Bodies.describe(message));
                    missing.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            missing.await(JavaClient.intOr(command, "timeoutMs", 300_000), TimeUnit.MILLISECONDS);
            // Acknowledgements travel on their own.
            Thread.sleep(500);
        } finally {
            consumer.shutdown();
        }
        JSONObject answer = new JSONObject();
        synchronized (attempts) {
            answer.put("messages", messages);
            answer.put("failures", failures[0]);
        }
        return answer;
    }

    private static void setMode(JSONObject command, String topic, String group) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(command.getString("nameserver"));
        admin.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        admin.setInstanceName(JavaClient.instanceName(command) + "-mode");
        admin.start();
        try {
            admin.setMessageRequestMode(
                    command.getString("broker"), topic, group, MessageRequestMode.POP, 0, 5_000);
        } finally {
            JavaClient.closeLater(admin::shutdown);
        }
    }
}
