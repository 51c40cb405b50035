package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Members of groups that fail on every message, or consume in order. */
final class JavaGroups {
    private JavaGroups() {}

    private static DefaultMQPushConsumer consumer(JSONObject command) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        consumer.setNamesrvAddr(command.getString("nameserver"));
        consumer.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        consumer.setInstanceName(JavaClient.instanceName(command));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(JavaClient.intOr(command, "maxReconsumeTimes", -1));
        consumer.setAwaitTerminationMillisWhenShutdown(5_000);
        consumer.subscribe(command.getString("topic"), "*");
        return consumer;
    }

    /** Fail {@code count} times in all; return [message id, times it had been tried before] of each. */
    static JSONArray fail(JSONObject command) throws Exception {
        CountDownLatch missing = new CountDownLatch(command.getIntValue("count"));
        JSONArray tries = new JSONArray();
        DefaultMQPushConsumer consumer = consumer(command);
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            synchronized (tries) {
                for (MessageExt message : (List<MessageExt>) batch) {
                    tries.add(JSONArray.of(message.getMsgId(), message.getReconsumeTimes()));
                    missing.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        return runUntil(missing, consumer, command, tries);
    }

    /**
     * Consume {@code count} messages in order and no more, or until {@code timeoutMs} is over; fail
     * on bodies of which the hash is in {@code poison}. Returns [queue, queue offset, nanoseconds, sha1] of each.
     */
    static JSONArray inOrder(JSONObject command) throws Exception {
        CountDownLatch missing = new CountDownLatch(command.getIntValue("count"));
        JSONArray seen = new JSONArray();
        DefaultMQPushConsumer consumer = consumer(command);
        consumer.registerMessageListener((MessageListenerOrderly) (batch, context) -> {
            context.setSuspendCurrentQueueTimeMillis(50);
            for (MessageExt message : batch) {
                String sha1 = Bodies.describe(message).getString("sha1");
                if (sha1.equals(command.getString("poison"))) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                synchronized (seen) {
                    if (missing.getCount() == 0) {
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                    seen.add(JSONArray.of(
                            message.getQueueId(), message.getQueueOffset(), System.nanoTime(), sha1));
                    missing.countDown();
                }
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        return runUntil(missing, consumer, command, seen);
    }

    private static JSONArray runUntil(
            CountDownLatch missing, DefaultMQPushConsumer consumer, JSONObject command, JSONArray seen)
            throws Exception {
        JavaMembers.start(consumer);
        try {
            missing.await(JavaClient.intOr(command, "timeoutMs", 300_000), TimeUnit.MILLISECONDS);
            Thread.sleep(JavaClient.intOr(command, "lingerMs", 0));
        } finally {
            JavaMembers.shutdown(consumer);
        }
        synchronized (seen) {
            return new JSONArray(seen);
        }
    }
}
