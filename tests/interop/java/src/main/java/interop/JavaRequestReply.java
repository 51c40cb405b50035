package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Asks with DefaultMQProducer.request, and replies with MessageUtil.createReplyMessage. */
final class JavaRequestReply {
    private JavaRequestReply() {}

    private static DefaultMQProducer producer(JSONObject command) throws Exception {
        DefaultMQProducer producer =
                new DefaultMQProducer(JavaClient.stringOr(command, "producerGroup", "java-rpc"));
        producer.setNamesrvAddr(command.getString("nameserver"));
        producer.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        producer.setInstanceName(JavaClient.instanceName(command));
        producer.start();
        return producer;
    }

    /** Send {@code count} requests one after the other; return the texts of the replies. */
    static JSONArray request(JSONObject command) throws Exception {
        DefaultMQProducer producer = producer(command);
        try {
            JSONArray replies = new JSONArray();
            for (int i = 0; i < command.getIntValue("count"); i++) {
                byte[] body = ("java asks " + i).getBytes(StandardCharsets.UTF_8);
                Message reply = producer.request(
                        new Message(command.getString("topic"), body),
                        JavaClient.intOr(command, "timeoutMs", 10_000));
                replies.add(new String(reply.getBody(), StandardCharsets.UTF_8));
            }
            return replies;
        } finally {
            JavaClient.closeLater(producer::shutdown);
        }
    }

    /** Reply "java says: " and the body to {@code count} requests. */
    static JSONObject reply(JSONObject command) throws Exception {
        DefaultMQProducer producer = producer(command);
        CountDownLatch missing = new CountDownLatch(command.getIntValue("count"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        consumer.setNamesrvAddr(command.getString("nameserver"));
        consumer.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        consumer.setInstanceName(JavaClient.instanceName(command));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(command.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            for (MessageExt message : batch) {
                try {
                    String text = "java says: " + new String(message.getBody(), StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(
                            message, text.getBytes(StandardCharsets.UTF_8)));
                    missing.countDown();
                } catch (Exception e) {
                    e.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            missing.await(60, TimeUnit.SECONDS);
        } finally {
            JavaClient.closeLater(consumer::shutdown);
            JavaClient.closeLater(producer::shutdown);
        }
        JSONObject answer = new JSONObject();
        answer.put("missing", missing.getCount());
        return answer;
    }
}
