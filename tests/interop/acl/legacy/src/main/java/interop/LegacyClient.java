package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * The client of RocketMQ 4, told what to do line by line as JavaClient is.
 *
 * <p>Every operation has {@code nameserver}, {@code topic}, {@code group}, {@code accessKey} and
 * {@code secretKey}.
 */
public final class LegacyClient {
    private LegacyClient() {}

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader commands =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JSONObject command = JSON.parseObject(line);
            Thread thread = new Thread(() -> answer(answers, command));
            thread.setDaemon(true);
            thread.start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(PrintStream answers, JSONObject command) {
        JSONObject answer = new JSONObject();
        answer.put("id", command.get("id"));
        try {
            answer.put("result", run(command));
        } catch (Throwable e) {
            e.printStackTrace();
            answer.put("error", e.toString());
        }
        synchronized (answers) {
            answers.println(answer.toJSONString());
            answers.flush();
        }
    }

    private static Object run(JSONObject command) throws Exception {
        switch (command.getString("op")) {
            case "send":
                return send(command);
            case "consume":
                return consume(command);
            case "transaction":
                return transaction(command);
            case "request":
                return request(command);
            default:
                throw new IllegalArgumentException(command.getString("op"));
        }
    }

    private static RPCHook hook(JSONObject command) {
        return new AclClientRPCHook(new SessionCredentials(
                command.getString("accessKey"), command.getString("secretKey")));
    }

    private static <P extends DefaultMQProducer> P started(JSONObject command, P producer)
            throws Exception {
        producer.setNamesrvAddr(command.getString("nameserver"));
        producer.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        producer.setInstanceName("legacy-" + command.get("id"));
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }

    private static Message message(JSONObject command) {
        byte[] body = command.getString("body").getBytes(StandardCharsets.UTF_8);
        return new Message(command.getString("topic"), "tag", "key", body);
    }

    private static String send(JSONObject command) throws Exception {
        DefaultMQProducer producer = started(command, new DefaultMQProducer("legacy", hook(command)));
        return producer.send(message(command)).getSendStatus().name();
    }

    /** Commit a transaction; the end goes out oneway. */
    private static String transaction(JSONObject command) throws Exception {
        TransactionMQProducer producer =
                new TransactionMQProducer(null, "legacy-payers", hook(command));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        started(command, producer);
        return producer.sendMessageInTransaction(message(command), null).getSendStatus().name();
    }

    /** Wait for a message; with {@code replies}, for a request, and reply to it. */
    private static String consume(JSONObject command) throws Exception {
        boolean replies = command.getBooleanValue("replies");
        DefaultMQProducer producer = replies
                ? started(command, new DefaultMQProducer("legacy-replies", hook(command))) : null;
        CompletableFuture<String> found = new CompletableFuture<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                command.getString("group"), hook(command), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(command.getString("nameserver"));
        consumer.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        consumer.setInstanceName("legacy-" + command.get("id"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(command.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            for (MessageExt message : batch) {
                if (replies && message.getProperty("REPLY_TO_CLIENT") == null) {
                    continue;
                }
                try {
                    if (producer != null) {
                        byte[] reply = "a reply".getBytes(StandardCharsets.UTF_8);
                        producer.send(MessageUtil.createReplyMessage(message, reply));
                    }
                    found.complete(new String(message.getBody(), StandardCharsets.UTF_8));
                } catch (Exception e) {
                    found.completeExceptionally(e);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            return found.get(command.getLongValue("timeoutMs"), TimeUnit.MILLISECONDS);
        } finally {
            Thread closing = new Thread(consumer::shutdown);
            closing.setDaemon(true);
            closing.start();
        }
    }

    private static String request(JSONObject command) throws Exception {
        DefaultMQProducer producer =
                started(command, new DefaultMQProducer("legacy-asks", hook(command)));
        Message reply = producer.request(message(command), 30_000);
        return new String(reply.getBody(), StandardCharsets.UTF_8);
    }
}
