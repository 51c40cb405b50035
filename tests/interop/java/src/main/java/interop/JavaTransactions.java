package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends transactional messages through TransactionMQProducer, and answers the broker's checks. */
final class JavaTransactions implements TransactionListener {
    private final CountDownLatch checksToCome;
    private final JSONArray checked = new JSONArray();

    private JavaTransactions(int checks) {
        checksToCome = new CountDownLatch(checks);
    }

    /**
     * Send {@code count} transactional messages {@code prefix-number}, the first one committed, the
     * second rolled back, the third left unknown, and so on; then wait for {@code checks} checks.
     *
     * <p>A check of an even number is answered with a commit, of an odd one with a rollback.
     *
     * @return {@code receipts}, one {@code [status, msgId, offsetMsgId, transactionId]} each, and
     *     {@code checked}, the keys that the broker asked about
     */
    static JSONObject run(JSONObject command) throws Exception {
        JavaTransactions listener = new JavaTransactions(JavaClient.intOr(command, "checks", 0));
        TransactionMQProducer producer =
                new TransactionMQProducer(JavaClient.stringOr(command, "group", "interop-payers"));
        producer.setNamesrvAddr(command.getString("nameserver"));
        producer.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        producer.setInstanceName(JavaClient.instanceName(command));
        producer.setSendMsgTimeout(10_000);
        producer.setHeartbeatBrokerInterval(200);
        producer.setTransactionListener(listener);
        producer.start();
        String topic = command.getString("topic");
        JSONArray receipts = new JSONArray();
        try {
            // Makes the broker known, and the producer to the broker.
            producer.send(new Message("Greetings", "hello".getBytes(StandardCharsets.UTF_8)));
            String prefix = JavaClient.stringOr(command, "prefix", "t");
            for (int i = 0; i < JavaClient.intOr(command, "count", 0); i++) {
                Message message = new Message(topic, Bodies.body(prefix, i, 0));
                message.setKeys(prefix + "-" + i);
                TransactionSendResult result = producer.sendMessageInTransaction(message, i % 3);
                JSONArray line = new JSONArray();
                line.add(result.getSendStatus().name());
                line.add(result.getMsgId());
                line.add(result.getOffsetMsgId());
                line.add(result.getTransactionId());
                receipts.add(line);
            }
            listener.checksToCome.await(JavaClient.intOr(command, "timeoutMs", 300_000),
                    TimeUnit.MILLISECONDS);
            // Ends go out oneway: a send that is answered comes after them on the connection.
            producer.send(new Message("Greetings", "bye".getBytes(StandardCharsets.UTF_8)));
        } finally {
            JavaClient.closeLater(producer::shutdown);
        }
        JSONObject result = new JSONObject();
        result.put("receipts", receipts);
        synchronized (listener.checked) {
            result.put("checked", listener.checked.clone());
        }
        return result;
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object kind) {
        return switch ((Integer) kind) {
            case 0 -> LocalTransactionState.COMMIT_MESSAGE;
            case 1 -> LocalTransactionState.ROLLBACK_MESSAGE;
            default -> LocalTransactionState.UNKNOW;
        };
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        String key = message.getKeys();
        int number = Integer.parseInt(key.substring(key.lastIndexOf('-') + 1));
        synchronized (checked) {
            checked.add(key);
        }
        checksToCome.countDown();
        return number % 2 == 0
                ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
    }
}
